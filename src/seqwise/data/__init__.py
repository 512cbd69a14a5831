"""Files → token stores → batches. It knows nothing of models."""
