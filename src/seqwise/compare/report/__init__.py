"""The report of a comparison: schema, collection of results, texts, verdict and HTML page."""
