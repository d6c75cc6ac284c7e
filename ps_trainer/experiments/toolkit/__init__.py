"""Tools with which experiments measure: clusters, virtual time, theory, statistics, models of a given size."""
