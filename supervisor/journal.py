"""What the processes report on stderr: lines of text, or JSON objects with --log-json. --log-file makes a file stderr.

It is called journal because in this project a log is where a shard keeps its messages. Fields for programs go in
`extra={"fields": {...}}`: the text format shows only the sentence, JSON shows both.

Where stderr is systemd's journal, each line begins with its priority (sd-daemon(3)), so that `journalctl -p warning`
works. The journal removes that prefix.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
# The priority of syslog(3) for records of at least that level.
PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


class TextFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 info mq-worker-0: recovered ..."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        line = f"{second}.{int(record.msecs):03d} {level} {self.process}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """{"time": seconds since 1970, "level", "process", "message", and the record's own fields}"""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "process": self.process,
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False, separators=(",", ":"))


class Handler(logging.StreamHandler[TextIO]):
    """The handler that configure() installs. It keeps what it was made for."""

    def __init__(self, level: str, as_json: bool, process: str, stream: TextIO) -> None:
        super().__init__(stream)
        self.made_for: Final = (level, as_json, stream)
        self.named: Final = JsonFormatter(process) if as_json else TextFormatter(process)
        self.setFormatter(PriorityFormatter(self.named, stream) if "JOURNAL_STREAM" in os.environ else self.named)


class PriorityFormatter(logging.Formatter):
    """The lines of another formatter, each with its priority in front while the stream is systemd's journal."""

    def __init__(self, other: logging.Formatter, stream: TextIO | None) -> None:
        super().__init__()
        self._other = other
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        text = self._other.format(record)
        # Asked for each record: a reload can make a log file stderr.
        return with_priority(text, record.levelno) if is_systemds(self._stream) else text


def with_priority(text: str, level: int) -> str:
    """
    >>> with_priority("a\\nb", logging.WARNING)
    '<4>a\\n<4>b'
    """
    priority = next((number for least, number in PRIORITIES if level >= least), 7)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def is_systemds(stream: TextIO | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `stream` leads to systemd's journal: whether its device and inode are those of JOURNAL_STREAM, see
    systemd.exec(5), since stderr may have been redirected after systemd set that. None: stderr is closed."""
    if stream is None:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False  # not a file
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def complain(message: str) -> None:
    """Prints one line to stderr, for use before configure()."""
    line = f"mq-shards: {' '.join(message.split())}"
    print(with_priority(line, logging.ERROR) if is_systemds(sys.stderr) else line, file=sys.stderr)


def configure(level: str, as_json: bool, process: str, stream: TextIO | None = None) -> None:
    """Sets up this process's root logger. May be called again; the last call counts.

    A child that wants what its supervisor had only takes the handler over: making another would copy pages they share.
    """
    stream = stream or sys.stderr
    root = logging.getLogger()
    found = root.handlers[0] if root.handlers else None
    if isinstance(found, Handler) and found.made_for == (level, as_json, stream):
        found.named.process = process
        return
    logging.raiseExceptions = False  # a closed stderr must not hurt the broker
    root.handlers[:] = [Handler(level, as_json, process, stream)]
    root.setLevel(level.upper())
