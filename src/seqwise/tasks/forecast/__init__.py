"""Values that come next."""
