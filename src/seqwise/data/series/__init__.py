"""Series of numbers over time: stamps, policies, scales, windows."""
