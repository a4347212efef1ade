"""What the handlers of the pipeline's HTTP API have in common: errors, JSON, numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
from aiohttp import web
from mq_shards.shards.readers import MAX_SEQ

SERVER: Final = {"Server": "mq-shards"}

# The request, and the fields of its query; `name` is what follows the path of a collection.
Handler = Callable[[web.BaseRequest, dict[str, str]], Awaitable[web.StreamResponse]]


class HttpError(Exception):
    """`more` goes into the reply's JSON beside the message."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.message: Final = message
        self.headers: Final = headers or {}
        self.more: Final = more or {}


def json_answer(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    all_headers = {"Content-Type": "application/json", **SERVER, **(headers or {})}
    return web.Response(status=status, body=orjson.dumps(data), headers=all_headers)


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_SEQ:
        raise HttpError(400, f"{name} is a whole number from 0 to {MAX_SEQ}")
    return int(text)
