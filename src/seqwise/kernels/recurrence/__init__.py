"""Recurrent layers as fused functions, for GPUs and for CPUs. They know nothing of modules."""
