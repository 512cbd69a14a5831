"""Captioning: a sentence for an image."""
