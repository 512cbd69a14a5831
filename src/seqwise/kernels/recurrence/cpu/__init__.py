"""Recurrent cells as loops that LLVM compiles. Importing `compiled` or `choice` imports no LLVM; using them does."""
