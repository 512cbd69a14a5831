"""Executing a plan: stages of jobs, carried out by local worker processes or a Ray cluster."""
