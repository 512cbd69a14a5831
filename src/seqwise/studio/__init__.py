"""The studio: one page in the browser that shows runs as they train, compares, uses and inspects them.

The server reads run folders and nothing else; it imports neither PyTorch nor a model, so it stays small. Predictions
and views are computed in worker processes, trainings run as ordinary commands.
"""
