"""The lab as pages: all statements with their figures on one page, and a chapter as slides."""

from __future__ import annotations

from seqwise.lab.page.build import build_lab_page, build_slides

__all__ = ["build_lab_page", "build_slides"]
