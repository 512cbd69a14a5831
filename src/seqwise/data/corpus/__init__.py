"""Texts that may be larger than memory: sources, splits, the token store, streams and windows of it."""
