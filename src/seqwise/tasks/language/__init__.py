"""Language modelling: the next token."""
