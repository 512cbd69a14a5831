"""Sentences whose words have tags: columns, schemes of spans, batches."""
