"""One label for a whole text."""
