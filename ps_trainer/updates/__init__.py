"""How a gradient becomes an update: one file per rule."""
