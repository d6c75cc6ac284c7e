"""Datasets: file formats, generators, and the input pipeline that they share."""
