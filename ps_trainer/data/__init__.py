"""What is read: datasets, file formats, sharding."""
