"""Process-level TensorFlow: server, start, control, end."""
