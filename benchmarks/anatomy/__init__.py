"""What one step of an update rule makes: session calls, RPCs, messages, copies and ops, as TensorFlow records them."""
