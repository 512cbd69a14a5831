"""Metrics: predictions and targets → numbers, each with its definition. They know nothing of models."""
