"""Launches clusters on this machine: hosts, processes, supervision, display. Imports no TensorFlow."""
