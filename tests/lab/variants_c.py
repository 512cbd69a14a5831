"""Deliberately wrong variants of chapter C's experiments: each must change the verdict."""

from __future__ import annotations

from seqwise.lab.gradients.c2_spectral_radius import SpectralRadius


class NormalTwice(SpectralRadius):
    """Forgets to build the non-normal matrix, so the claim looks true everywhere."""

    def build_non_normal(self):
        return self.build_normal()


VARIANTS = {"C2": NormalTwice}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {}
