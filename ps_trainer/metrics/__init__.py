"""Where numbers go: log lines, JSON lines, TensorBoard events."""
