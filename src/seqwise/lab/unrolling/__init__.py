"""Chapter B: unrolling, weight sharing, backpropagation through time."""
