"""The input pipeline: sharding, shuffling, batching, decoding, vocabularies."""
