"""Training: the loop (yields steps), optimisers, schedules, budgets, checkpoints, distribution, the run folder."""
