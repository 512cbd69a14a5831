"""The report of a comparison as one HTML file. It reads the report as plain data and knows nothing of trials."""
