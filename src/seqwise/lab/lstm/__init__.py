"""Chapter D: LSTM."""
