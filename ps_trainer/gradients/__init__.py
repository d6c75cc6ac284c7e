"""Gradient transforms: change a gradient between its computation and its arrival on the ps; one file each."""
