"""Model graphs: one model per file, readable top to bottom."""
