"""Training in virtual time: who reads which version when, and whose gradient makes which update."""
