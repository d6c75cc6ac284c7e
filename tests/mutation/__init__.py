"""Mutation testing: breaks the package on purpose, a place at a time, and looks whether the tests notice."""
