"""Chapter G: Transformer."""
