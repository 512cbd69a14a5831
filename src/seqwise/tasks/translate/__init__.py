"""One text for another."""
