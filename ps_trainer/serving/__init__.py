"""A trained model behind an HTTP endpoint in the form of TensorFlow Serving's REST API."""
