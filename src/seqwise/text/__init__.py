"""Text → token ids and back, with the character positions kept. It knows nothing of files, batches or tensors."""
