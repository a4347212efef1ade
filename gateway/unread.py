"""How far named readers have read: the HTTP API for pipelines knows it, and statistics of topics show it."""

from __future__ import annotations

from typing import NamedTuple


class Unread(NamedTuple):
    """How far a named reader has read one topic."""

    reader: str
    messages: int
    next_seq: int
