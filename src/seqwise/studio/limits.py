"""Requests that are too many, too large or too slow."""

from __future__ import annotations

from seqwise.errors import SeqwiseError


class BusyError(SeqwiseError):
    """Too much is computed, trained or waiting already."""


class ClientTimeout(Exception):
    """The client does not read its answer."""


class RequestTooLarge(Exception):
    """The body of a request is too large."""
