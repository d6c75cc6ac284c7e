"""Mutation testing: breaks the package on purpose, one place at a time, and checks whether the tests notice."""
