"""Output of numbers: log lines, JSON lines, TensorBoard events; and measured traffic."""
