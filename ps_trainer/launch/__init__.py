"""Starting processes on this machine. Imports no TensorFlow."""
