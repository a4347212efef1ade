"""Sections, the form in which messages come over HTTP: each holds messages for one topic, as PUBLISH_MANY takes them.

A section is little-endian:

    uint16 bytes of the topic's name, uint16 flags, uint32 messages, uint32 bytes of messages
    the topic's name, as it is shown (console/names.py)
    with flag SCHEDULED: uint64 delay_ns, uint32 priority, uint32 0
    the messages (csrc/ringbuf/many.h); with flag HEADERS each begins with its struct headers (csrc/ringbuf/message.h)

A worker never refuses the form of a section that was checked here. Python code runs per section, never per message.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.names import MAX_TOPIC_BYTES, raw, shown
from mq_shards.shards import durable

HEAD: Final = struct.Struct("<HHII")
HEADERS: Final = 1
SCHEDULED: Final = 2
SCHEDULE: Final = struct.Struct("<QII")
MAX_DELAY_NS: Final = ((1 << 32) - 1) * 1_000_000_000
# A section is one request to a worker, small so that other clients do not wait long. A single message may be larger.
SECTION_BYTES: Final = 1 << 20
BODY_SECTIONS: Final = 1 << 16  # sections of one body
READ_BYTES: Final = 64 << 10
SHOWN_BYTES: Final = len(r"\xff") * MAX_TOPIC_BYTES  # the longest name as shown: none of its bytes is text
HEADERS_MOST: Final[int] = ffi.sizeof("struct headers") + lib.HEADERS_MAX_BYTES
ANY_SIZE: Final = (1 << 32) - 1
# Matches most names without the full check of _is_name().
_USUAL_NAME: Final = re.compile(r"[A-Za-z0-9+/;.$_():@-]+(?:#ephemeral)?")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


class SectionsError(Exception):
    """One line: what is wrong with a section."""


class Section(NamedTuple):
    topic: str
    messages: int
    start: int  # where its head begins
    data: int  # where its messages begin
    end: int
    has_headers: bool = False
    delay_ns: int = 0
    priority: int | None = None


def check(body: bytes, max_message_bytes: int) -> Iterator[Section]:
    """Yields every section of a body, after checking all that it holds. Raises SectionsError."""
    base = ffi.from_buffer("uint8_t[]", body)
    names: set[str] = set()
    at = sections = 0
    while at < len(body):
        section = _decode(body, at)
        if section.end > len(body):
            raise SectionsError(f"the body ends in the middle of a section, which begins at {at}")
        if section.topic not in names:
            if (name_bytes := len(raw(section.topic))) > MAX_TOPIC_BYTES:
                raise SectionsError(f"a topic's name has {MAX_TOPIC_BYTES} bytes at most; at {at} are {name_bytes}")
            if not _is_name(section.topic):
                raise SectionsError(f"{section.topic[:80]!r} is not a topic's name")
            names.add(section.topic)
        size = section.end - section.data
        if size > SECTION_BYTES and section.messages != 1:
            raise SectionsError(f"a section has {SECTION_BYTES} bytes at most, or one message; at {at} are {size}")
        most = max_message_bytes + (HEADERS_MOST if section.has_headers else 0)
        if section.messages == 0 or lib.many_count(base + section.data, size, most) != section.messages:
            if section.messages and lib.many_count(base + section.data, size, ANY_SIZE) == section.messages:
                raise SectionsError(
                    f"a message for {section.topic[:80]!r} has more than {max_message_bytes} bytes, which is the most "
                    "that the broker takes of clients of any protocol (docs/limits.md)"
                )
            raise SectionsError(f"the section at {at} does not hold {section.messages or 'any'} messages")
        if section.has_headers and not lib.many_have_headers(base + section.data, size):
            raise SectionsError(f"a message in the section at {at} has not the headers that it should begin with")
        sections += 1
        if sections > BODY_SECTIONS:
            raise SectionsError(f"a body has {BODY_SECTIONS} sections at most")
        yield section
        at = section.end


def in_file(path: Path, until: int) -> Iterator[Section]:
    """Yields the sections of the first `until` bytes of a file; reads only their heads.

    Raises OSError, and SectionsError if no section ends there.
    """
    with os.fdopen(durable.open_to_read(path), "rb", buffering=READ_BYTES) as file:
        at = 0
        while at < until:
            file.seek(at)
            section = _decode(file.read(HEAD.size + SHOWN_BYTES + SCHEDULE.size), 0)
            section = section._replace(start=at, data=at + section.data, end=at + section.end)
            if section.end > until:
                raise SectionsError(f"{path.name}: {until} bytes end in the middle of a section")
            yield section
            at = section.end


def split(data: bytes) -> tuple[Section, memoryview]:
    """Splits the bytes of one section into its head, decoded, and its messages, which are not copied. Raises
    SectionsError."""
    section = _decode(data, 0)
    if section.end != len(data):
        raise SectionsError("a section is not what it was when it was staged")
    return section, memoryview(data)[section.data :]


def _is_name(text: str) -> bool:
    """Whether some protocol of this broker allows a topic of this name."""
    if _USUAL_NAME.fullmatch(text) is not None:
        return True
    return text != "" and _CONTROL.search(text) is None and shown(raw(text)) == text


def _decode(data: bytes, at: int) -> Section:
    if len(data) - at < HEAD.size:
        raise SectionsError(f"a section ends in the middle of its head, at {at}")
    name_bytes, flags, messages, size = HEAD.unpack_from(data, at)
    if flags & ~(HEADERS | SCHEDULED):
        raise SectionsError(f"no section begins at {at}")
    if name_bytes > SHOWN_BYTES:
        raise SectionsError(f"a topic's name has {MAX_TOPIC_BYTES} bytes at most; at {at} are {name_bytes}")
    start = at + HEAD.size
    name, start = data[start : start + name_bytes], start + name_bytes
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        raise SectionsError(f"{name[:80]!r} is not a topic's name as it is shown") from None
    if not flags & SCHEDULED:
        return Section(topic, messages, at, start, start + size, bool(flags & HEADERS))
    if len(data) - start < SCHEDULE.size:
        raise SectionsError(f"a section ends in the middle of its head, at {at}")
    delay_ns, priority, zero = SCHEDULE.unpack_from(data, start)
    if zero != 0 or delay_ns > MAX_DELAY_NS:
        raise SectionsError(f"no section begins at {at}")
    start += SCHEDULE.size
    return Section(topic, messages, at, start, start + size, bool(flags & HEADERS), delay_ns, priority)
