"""Heads: states → scores. One small class per kind of prediction."""
