"""Persistent Triton kernels for recurrent cells. Importing a module in here imports triton."""
