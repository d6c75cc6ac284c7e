"""Update rules, which turn gradients into updates: one file per rule."""
