"""The terms of publishing over HTTP."""

from __future__ import annotations

from typing import NamedTuple


class Terms(NamedTuple):
    """What holds for messages that are published over HTTP, through whatever API."""

    message_timeout_ns: int  # one that is delivered and not finished within it is delivered again
    max_message_bytes: int
    max_body_bytes: int  # of a request
