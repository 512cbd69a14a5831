"""Chapter F: attention."""
