"""One tag for each word."""
