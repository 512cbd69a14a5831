"""Figures and pages: declarative figures (`figures.py`) and how they are drawn as text, SVG, PNG and HTML."""
