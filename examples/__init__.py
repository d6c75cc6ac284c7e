"""Components of a user's own, to copy: see README.md."""
