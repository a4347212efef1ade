"""Writes for people or, with --json, for programs: one object a line."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from mq_shards.supervisor.terminal.client import Message
from mq_shards.supervisor.terminal.columns import columns, padded

COLUMNS: Final = (
    ("in", "IN/S"), ("delivered", "DELIV/S"), ("out", "FIN/S"), ("backlog", "BACKLOG"), ("in_flight", "IN FLIGHT"),
    ("consumers", "CONSUMERS"), ("published", "PUBLISHED"),
)  # fmt: skip
NOT_SAID: Final = "-"
LOOKALIKES: Final = str.maketrans("▁▂▃▄▅▆▇█…·“”↑↓", '..:-=+*#~.""^v')
TEXT_CHARACTERS: Final = 2000  # how much of a body a line shows


def as_json(found: dict[str, Any]) -> None:
    is_ascii = sys.stdout.encoding.lower() != "utf-8"
    print(json.dumps(found, ensure_ascii=is_ascii, separators=(",", ":")), flush=True)


def message_json(message: Message) -> dict[str, Any]:
    try:
        body = {"text": message.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(message.body).decode()}
    return {"topic": message.topic, **message.more, "bytes": message.more.get("bytes", len(message.body)), **body}


def message_line(message: Message) -> str:
    more = message.more
    place = more.get("seq", more.get("job", more.get("id", "")))
    when = f"{moment(more['time_ns'])}  " if more.get("time_ns") else ""
    state = f"{more['state']}  " if "state" in more else ""
    return f"{place!s:>8}  {when}{state}{printable(message.body)}"


def printable(body: bytes) -> str:
    """The body as one line, without anything that a terminal would act on.

    >>> [printable(b) for b in (b"a\\x1b[2Jb\\n", bytes([0, 255]), "häß".encode())]
    ['a\\\\x1b[2Jb\\\\n', '0x00ff', 'häß']
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "0x" + body[:TEXT_CHARACTERS].hex()
    shown = safe(text[:TEXT_CHARACTERS])
    return shown if len(text) <= TEXT_CHARACTERS else f"{shown}... ({len(body)} bytes)"


def safe(text: str) -> str:
    """The text as one line, without anything that a terminal would act on."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def spelled(text: str, encoding: str) -> str:
    """The text in characters that the encoding has.

    >>> [spelled(" ▂█ ü…", name) for name in ("utf-8", "latin-1", "ascii")]
    [' ▂█ ü…', ' .# ü~', ' .# ?~']
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(LOOKALIKES).encode(encoding, "replace").decode(encoding)
    return text


def moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def short(value: float | None) -> str:
    """
    >>> [short(value) for value in (None, 0, 7.25, 1234, 1234567, 8.9e9)]
    ['-', '0', '7.2', '1234', '1.23M', '8.90G']
    """
    if value is None:
        return NOT_SAID
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scale = 1e3 if unit == "k" else size
            return f"{value / scale:.2f}{unit}" if value < 10 * scale else f"{value / scale:.1f}{unit}"
    return f"{value:.1f}" if value % 1 and value < 100 else f"{value:.0f}"


def counted(count: int, things: str) -> str:
    """
    >>> counted(1, "jobs"), counted(2, "jobs")
    ('1 job', '2 jobs')
    """
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def topics(rows: Sequence[dict[str, Any]]) -> None:
    names = [safe(row["name"]) for row in rows]
    width = max((5, *map(columns, names)))
    print(f"{'TOPIC':<{width}}" + "".join(f"  {title:>9}" for _, title in COLUMNS))
    for name, row in zip(names, rows, strict=True):
        paused = "  paused" if row.get("paused") else ""
        print(padded(name, width) + "".join(f"  {short(row.get(column)):>9}" for column, _ in COLUMNS) + paused)
    sys.stdout.flush()
