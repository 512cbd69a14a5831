"""Files → token stores or examples → batches. It knows nothing of models."""
