"""Curves and figures of finished or running training runs, from the files in their folders."""
