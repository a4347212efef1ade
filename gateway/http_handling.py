"""What handlers of the HTTP API and of the console share: their signature, reading of numbers, the largest body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from mq_shards.gateway.http_answers import Answer, HttpError
from mq_shards.gateway.http_server import Request
from mq_shards.shards.readers import MAX_SEQ

MAX_BODY_BYTES: Final = 32 << 20

# Takes the request and the fields of its query; the field `name` is what follows the path of a collection. Returns
# None if it has sent the answer itself.
Handler = Callable[[Request, dict[str, str]], Awaitable[Answer | None]]


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_SEQ:
        raise HttpError(400, f"{name} is a whole number from 0 to {MAX_SEQ}")
    return int(text)
