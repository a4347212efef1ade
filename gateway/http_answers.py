"""Answers of all HTTP APIs: a status, headers and a body; and the only error that a handler may raise."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import orjson

TEXT: Final = "text/plain; charset=utf-8"
MAX_REASON: Final = 2048  # characters
_NOT_IN_A_LINE: Final = re.compile(r"[^ -~]")
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


class HttpError(Exception):
    """An error answer. `more`: fields besides the message, in an API whose errors are JSON."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.message: Final = message
        self.headers: Final = headers or {}
        self.more: Final = more or {}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes | memoryview = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""  # of the status line; none: the usual one

    def encode(self, connection: str, *, with_body: bool = True, is_old: bool = False) -> bytes:
        head = encode_head(self.status, self.headers, len(self.body), connection, is_old=is_old, reason=self.reason)
        return head + self.body if with_body else head


def json_answer(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, orjson.dumps(data), {"Content-Type": "application/json", **(headers or {})})


def encode_head(
    status: int, headers: Mapping[str, str], body_bytes: int, connection: str, *, is_old: bool = False, reason: str = ""
) -> bytes:
    """The head of an answer. `connection`: the value of that header, or "". `is_old`: to a request of HTTP/1.0. Headers
    must not contain line ends. Of `reason` there is what a status line can have."""
    phrase = _NOT_IN_A_LINE.sub("?", reason[:MAX_REASON]) or _REASONS.get(status, "Unknown")
    lines = [f"HTTP/1.{0 if is_old else 1} {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {body_bytes}", f"Date: {_date(int(time.time()))}", "Server: mq-shards"]
    if connection:
        lines.append(f"Connection: {connection}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@lru_cache(1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
