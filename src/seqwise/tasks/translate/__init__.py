"""Translation: one text from another."""
