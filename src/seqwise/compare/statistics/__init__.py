"""Which differences are significant: intervals, tests between families, ranking, overfitting check."""
