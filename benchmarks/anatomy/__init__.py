"""The work of one step of an update rule: session calls, RPCs, messages, copies and ops, as TensorFlow records them."""
