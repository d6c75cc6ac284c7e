"""What happens to a gradient between its computation and its arrival on the ps: one file per transform."""
