"""Recurrent cells as loops that LLVM compiles. Importing `compiled` or `support` imports no LLVM; using them does."""
