"""Parts of a worker's graph, which `training/graph.py` assembles: input, step, and the worker's own state."""
