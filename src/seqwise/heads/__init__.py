"""Heads: the vectors of a backbone → scores. One small class per kind of prediction."""
