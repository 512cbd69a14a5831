"""A text for a picture."""
