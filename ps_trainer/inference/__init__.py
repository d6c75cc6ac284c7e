"""Uses of a trained model, in one process without a cluster: predictions, text, word vectors, SavedModels, HTTP."""
