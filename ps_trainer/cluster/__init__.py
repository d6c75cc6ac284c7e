"""The cluster: its description and the sources of it, addresses, ports, checks. Imports no TensorFlow."""
