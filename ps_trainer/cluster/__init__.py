"""Who takes part: the cluster's description and where it comes from. Imports no TensorFlow."""
