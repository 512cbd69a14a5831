"""Masked language modelling: the tokens that are masked."""
