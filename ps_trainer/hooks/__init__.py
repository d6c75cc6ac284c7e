"""What is put into a worker's step for the sake of an experiment."""
