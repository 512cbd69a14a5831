"""Chapter H: words and language models."""
