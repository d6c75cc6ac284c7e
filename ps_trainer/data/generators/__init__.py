"""Generators of datasets with a known truth, one per file."""
