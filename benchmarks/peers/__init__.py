"""What we compare with, each peer written as its own users write it."""
