"""Requests that are too many or too large."""

from __future__ import annotations

from seqwise.errors import SeqwiseError


class BusyError(SeqwiseError):
    """Too much is computed, trained or waiting already."""


class RequestTooLarge(Exception):
    """The body of a request is too large."""
