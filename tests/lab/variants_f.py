"""Deliberately wrong variants of chapter F's experiments, from two files."""

from __future__ import annotations

import variants_f1_to_f10
import variants_f11_to_f20

VARIANTS = {**variants_f1_to_f10.VARIANTS, **variants_f11_to_f20.VARIANTS}
FOUND = {**variants_f1_to_f10.FOUND, **variants_f11_to_f20.FOUND}
