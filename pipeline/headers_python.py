"""Reads the headers of a message as names and values: csrc/pipeline/entries.h without C, to the same entries."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

NATS: Final = 1
PULSAR: Final = 2
SPARK: Final = 3
MOST: Final = 64
EVERY_MESSAGES: Final = (b"pri", b"ttr_ms", b"delay_ms")
PREFIX: Final = b"property."
_SIZES: Final = struct.Struct("<II")
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def tag(field: int, wire: int) -> int:
    return field << 3 | wire


class Entries:
    """Names and values. `whole`: nothing of the headers is left out."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.values: list[bytes] = []
        self.prefixed: list[bool] = []
        self.whole = True

    def pairs(self) -> list[tuple[str, str]]:
        return [
            ((PREFIX + name if prefixed else name).decode(), value.decode())
            for name, value, prefixed in zip(self.names, self.values, self.prefixed, strict=True)
        ]

    def find(self, name: bytes, start: int, end: int) -> int:
        try:
            return self.names.index(name, start, end)
        except ValueError:
            return -1

    def append(self, name: bytes, value: bytes, prefixed: bool = False) -> bool:
        if len(self.names) == MOST or not _is_text(name) or not _is_text(value):
            return False
        self.names.append(name)
        self.values.append(value)
        self.prefixed.append(prefixed)
        return True

    def replace(self, at: int, value: bytes) -> bool:
        if not _is_text(value):
            return False
        self.values[at] = value
        return True

    def add(self, name: bytes, value: bytes) -> bool:
        """Adds an entry unless its name has come before, as a map has each name once. False if it cannot."""
        if not _is_text(name) or not _is_text(value):
            return False
        if name in EVERY_MESSAGES or name in self.names:
            return True
        return self.append(name, value)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def of_nats(data: bytes) -> Entries:
    found, at, first = Entries(), 0, True
    while at < len(data):
        stop = data.find(b"\r", at)
        if stop < 0 or data[stop + 1 : stop + 2] != b"\n":
            return _broken(found)
        if not first and stop > at:
            name, colon, value = data[at:stop].partition(b":")
            if not colon or not name or not found.add(name, value.strip(b" \t")):
                return _broken(found)
        first = False
        at = stop + 2
    return _broken(found) if first else found


def of_spark(data: bytes) -> Entries:
    found, at = Entries(), 0
    while at < len(data):
        if len(data) - at < _SIZES.size:
            return _broken(found)
        name_bytes, value_bytes = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        end = at + name_bytes + value_bytes
        if name_bytes == 0 or end > len(data) or not found.add(data[at : at + name_bytes], data[at + name_bytes : end]):
            return _broken(found)
        at = end
    return found


def _broken(found: Entries) -> Entries:
    found.whole = False
    return found


# --- Pulsar ---------------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    tag: int
    number: int
    data: bytes


class NotProtobufError(Exception):
    pass


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise NotProtobufError


def protobuf(data: bytes) -> Iterator[Field]:
    """Yields the fields. Raises NotProtobufError after the last sound one."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key > 0xFFFFFFFF or key < 8:
            raise NotProtobufError
        wire, number, size = key & 7, 0, 0
        if wire == VARINT:
            number, at = varint(data, at)
        elif wire == BYTES:
            size, at = varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise NotProtobufError
        if size > len(data) - at:
            raise NotProtobufError
        yield Field(key, number, data[at : at + size])
        at += size


def as_far_as(data: bytes) -> Iterator[Field]:
    """Yields the fields before the first unsound one."""
    try:
        yield from protobuf(data)
    except NotProtobufError:
        return


# The tag in an entry's metadata, the tag in that of one message of a batch, and the name.
_NAMED: Final = (
    (tag(6, BYTES), tag(2, BYTES), b"key"),
    (tag(12, VARINT), tag(5, VARINT), b"event_time_ms"),
    (tag(17, VARINT), tag(6, VARINT), b"key_encoding"),
    (tag(18, BYTES), tag(7, BYTES), b"ordering_key"),
    (tag(25, VARINT), tag(9, VARINT), b"null_value"),
)
_OF_ENTRY: Final = {of_entry: name for of_entry, _, name in _NAMED}
_OF_SINGLE: Final = {of_single: name for _, of_single, name in _NAMED}


def of_pulsar(metadata: bytes, *, single: bool) -> Entries:
    found = Entries()
    names = _OF_SINGLE if single else _OF_ENTRY
    for field in as_far_as(metadata):
        if (name := names.get(field.tag)) is not None:
            found.whole &= _add_field(found, name, field)
    ours = len(found.names)
    wanted = tag(1 if single else 4, BYTES)
    for field in as_far_as(metadata):
        if field.tag == wanted:
            found.whole &= _add_property(found, ours, field.data)
    return found


def _add_field(found: Entries, name: bytes, field: Field) -> bool:
    if field.tag & 7 == BYTES:
        value = field.data
    elif field.number == 0:
        return True
    elif name == b"event_time_ms":
        value = b"%d" % field.number
    else:
        value = b"base64" if name == b"key_encoding" else b"true"
    before = found.find(name, 0, len(found.names))
    return found.append(name, value) if before < 0 else found.replace(before, value)


def _add_property(found: Entries, ours: int, pair: bytes) -> bool:
    name = value = None
    try:
        for field in protobuf(pair):
            if field.tag == tag(1, BYTES):
                name = field.data
            if field.tag == tag(2, BYTES):
                value = field.data
    except NotProtobufError:
        return False
    if name is None or value is None:
        return False
    before = found.find(name, ours, len(found.names))
    if before >= 0:
        return found.replace(before, value)
    return found.append(name, value, prefixed=name in EVERY_MESSAGES or name in found.names[:ours])


class Metadata(NamedTuple):
    messages: int  # in the batch; 0: the entry is no batch
    compression: int
    uncompressed_bytes: int
    opens: bool  # the entry is neither encrypted, nor a chunk of more, nor a marker


def split_entry(data: bytes) -> tuple[bytes, int] | None:
    """Returns an entry's metadata, and where its payload begins; None if the entry is cut short."""
    at = 6 if len(data) >= 6 and data[:2] == b"\x0e\x01" else 0
    if len(data) - at < 4:
        return None
    size = int.from_bytes(data[at : at + 4], "big")
    at += 4
    return (data[at : at + size], at + size) if size <= len(data) - at else None


def scan_metadata(data: bytes) -> Metadata | None:
    """Returns None if the data is no entry's metadata."""
    numbers: dict[int, int] = {}
    try:
        for field in protobuf(data):
            numbers[field.tag] = field.number
    except NotProtobufError:
        return None
    if not {tag(1, BYTES), tag(2, VARINT), tag(3, VARINT)} <= numbers.keys():
        return None
    messages = numbers.get(tag(11, VARINT), 0) & 0xFFFFFFFF
    closed = tag(13, BYTES) in numbers or numbers.get(tag(27, VARINT), 0) > 1 or tag(20, VARINT) in numbers
    return Metadata(
        messages,
        numbers.get(tag(8, VARINT), 0) & 0xFFFFFFFF,
        numbers.get(tag(9, VARINT), 0) & 0xFFFFFFFF,
        not closed and messages < 1 << 31,
    )


def singles(batch: bytes, messages: int) -> list[tuple[bytes, bytes]] | None:
    """Returns metadata and payload of each message; None unless the batch is exactly so many messages."""
    found: list[tuple[bytes, bytes]] = []
    at = 0
    while len(found) < messages:
        if len(batch) - at < 4:
            return None
        size = int.from_bytes(batch[at : at + 4], "big")
        at += 4
        if size > len(batch) - at or size > 65536:
            return None
        metadata = batch[at : at + size]
        at += size
        payload_bytes = None
        try:
            for field in protobuf(metadata):
                if field.tag == tag(3, VARINT):
                    payload_bytes = field.number
        except NotProtobufError:
            return None
        if payload_bytes is None or payload_bytes > len(batch) - at:
            return None
        found.append((metadata, batch[at : at + payload_bytes]))
        at += payload_bytes
    return found if at == len(batch) else None
