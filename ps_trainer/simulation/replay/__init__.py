"""Training of a real model along a schedule in virtual time; the only part of the simulation with TensorFlow."""
