"""Fill-in: tokens that are hidden."""
