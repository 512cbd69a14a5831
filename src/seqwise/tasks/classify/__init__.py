"""Classification: one label for a whole text."""
