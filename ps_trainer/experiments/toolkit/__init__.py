"""What experiments measure with: clusters, virtual time, theory, statistics, models of a given size."""
