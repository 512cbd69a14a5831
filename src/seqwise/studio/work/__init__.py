"""The functions that a worker process runs. They may import PyTorch; the server does not import them.

A function has keyword arguments, as the `resolve` of its request returns them, and `context`, which loads runs, reports
progress and emits partial results. It returns JSON values.
"""
