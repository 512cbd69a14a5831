"""Kernels: fused functions on plain tensors. They know nothing of modules."""
