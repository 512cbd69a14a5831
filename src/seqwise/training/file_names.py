"""The names of the files of a run folder, for modules that read one without PyTorch."""

from __future__ import annotations

CONFIG, ENVIRONMENT, WEIGHTS, SUMMARY = "config.yaml", "env.json", "model.safetensors", "summary.json"
METRICS = "metrics.jsonl"
COMPARISON_FILE = "compare.yaml"  # its presence makes a folder a comparison
