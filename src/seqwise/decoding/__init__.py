"""Decoding: scores → sequences. It knows nothing of the tokens' text."""
