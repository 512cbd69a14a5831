"""Settings that several models share in a test: `keep_used` leaves out those that a model does not use."""

from __future__ import annotations

from typing import Any

from seqwise.applicability import reset_unused
from seqwise.config import Settings, merge_settings, parse_settings


def keep_used(base: dict[str, Any], **overrides: Any) -> Settings:
    """Returns the settings that have an effect together."""
    settings: Settings = parse_settings(merge_settings(base, overrides))
    reset_unused(settings, [settings])
    return settings
