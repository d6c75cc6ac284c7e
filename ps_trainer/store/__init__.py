"""The layouts of parameters over the ps tasks: packed vectors, single variables, tables."""
