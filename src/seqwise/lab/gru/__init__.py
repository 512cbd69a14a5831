"""Chapter E: GRU."""
