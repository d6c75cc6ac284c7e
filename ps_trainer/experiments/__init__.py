"""Experiments of the literature, each with a claim, a measurement, a plot and a verdict."""
