"""What the processes say about themselves, on stderr: lines of text, or JSON objects with --log-json.

Called journal because in this project a log is where a shard keeps its messages. Fields that a machine may want go
in `extra={"fields": {...}}`: text shows the sentence, JSON shows both.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")


class TextFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 info mq-worker-0: recovered ..."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        line = f"{second}.{int(record.msecs):03d} {level} {self._process}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """{"time": seconds since 1970, "level", "process", "message", and the record's own fields}"""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False, separators=(",", ":"))


def configure(level: str, as_json: bool, process: str, stream: TextIO | None = None) -> None:
    """Sets up this process's root logger. May be called again; the last call holds."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if as_json else TextFormatter(process))
    logging.raiseExceptions = False  # a closed stderr must not hurt the broker
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
