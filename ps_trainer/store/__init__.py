"""Layouts of the parameters over the ps tasks: packed vectors, single variables, embedding tables."""
