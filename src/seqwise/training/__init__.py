"""Training: the loop (yields steps), optimisers, schedules, checkpoints, distribution, the run folder, `train`."""
