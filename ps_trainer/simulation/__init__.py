"""Training in virtual time: when each worker reads which version, and which gradients make each update."""
