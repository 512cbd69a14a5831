"""Recurrent cells as loops that LLVM compiles. Importing `compiled` imports no LLVM; using it does."""
