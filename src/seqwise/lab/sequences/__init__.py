"""Chapter A: sequences and their shapes."""
