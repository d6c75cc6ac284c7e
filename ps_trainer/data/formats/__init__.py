"""Loaders of file formats and public datasets, one per file."""
