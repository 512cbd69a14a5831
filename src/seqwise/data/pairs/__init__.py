"""Texts with their translations: files side by side, languages, where pairs part, dates."""
