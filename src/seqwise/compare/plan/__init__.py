"""What to compare: options, model variants, matched sizes and budgets become a plan in a folder."""
