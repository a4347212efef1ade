"""What the compaction of a topic keeps: the last message of each key. Given messages in order, it says which of them
are superseded. It knows nothing of workers. Keys and empty messages are defined as in a real broker 4.0:

- The key is the partition key; in a batch each message has its own. A message without a key is superseded at once.
- An empty message deletes its key and is itself removed. In a batch, a message without payload is empty. Alone, only
  one is whose metadata give an uncompressed size of 0, as Java clients write it; a real broker takes no other as empty.
- A batch that cannot be decoded (encrypted, damaged) has the key of the whole entry. Chunks of a message stay together.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.pulsar import metadata as metadata_module
from mq_shards.gateway.pulsar.metadata import PULSAR_TAG, Metadata

MAX_PARTS: Final = 64 * lib.PARTS_MAX_WORDS
MAX_SAID: Final = 1000  # messages in one request: the worker has to find each of them
WORD: Final = (1 << 64) - 1
_SCANNED_BYTES: Final = ffi.sizeof("struct scanned")
_HEADERS_BYTES: Final = ffi.sizeof("struct headers")
_KEY_BYTES: Final = 120  # of memory, besides the key itself


class TooManyKeysError(Exception):
    pass


@dataclass(slots=True)
class _Kept:
    """Where the last message of a key is."""

    seqs: list[int]  # several: those of its chunks
    part: int  # its number in the batch; -1: not in a batch
    chunks: str | None = None  # of a chunked message: its id


@dataclass(slots=True)
class Superseding:
    max_key_bytes: int
    max_batch_bytes: int  # the largest batch that is decompressed
    removed: int = 0  # messages without a key or with an outdated one, as a real broker counts
    _last: dict[str, _Kept] = field(default_factory=dict)
    _left: dict[int, int] = field(default_factory=dict)  # by seq of a batch: its parts that are kept, as bits
    _changed: dict[int, int] = field(default_factory=dict)  # by seq: the parts that are left, as bits; 0: none
    _key_bytes: int = 0

    def judge(self, scanned: bytes, since: int) -> list[bytes]:
        """Takes a worker's answer to a SCAN from seq `since` on, and returns the verdicts that follow.

        Raises TooManyKeysError, and ValueError if the answer is cut off.
        """
        self._see_all(scanned)
        return self._verdicts(since)

    def _see_all(self, scanned: bytes) -> None:
        at = 0
        while at < len(scanned):
            if len(scanned) - at < _SCANNED_BYTES:
                raise ValueError("a worker's answer is cut off")
            one = ffi.from_buffer("struct scanned *", memoryview(scanned)[at:])
            body_at = at + _SCANNED_BYTES + one.headers_bytes
            headers = scanned[at + _SCANNED_BYTES : body_at]
            at = body_at + one.given_bytes
            if at > len(scanned):
                raise ValueError("a worker's answer is cut off")
            self._see(one.seq, headers, scanned[body_at:at], one.body_bytes)

    def _verdicts(self, since: int) -> list[bytes]:
        """What was superseded since the last verdicts, as parts of struct superseded[], each for one request.

        The last part has the messages from `since` on, the others at most MAX_SAID messages before it.
        """
        changed = sorted(self._changed.items())
        self._changed.clear()
        earlier = bisect.bisect_left(changed, (since,))
        parts = [changed[at : min(at + MAX_SAID, earlier)] for at in range(0, earlier, MAX_SAID)]
        return [b"".join(map(_superseded, part)) for part in [*parts, changed[earlier:]]]

    # --- one entry --------------------------------------------------------------------------------------------------

    def _see(self, seq: int, headers: bytes, body: bytes, body_bytes: int) -> None:
        found = None
        if len(headers) >= _HEADERS_BYTES and ffi.from_buffer("struct headers *", headers).tag == PULSAR_TAG:
            found = metadata_module.read(headers[_HEADERS_BYTES:])
        if found is None:
            self._remove(seq)
            return
        if found.batch_messages is not None and not found.is_encrypted:
            parts = list(_parts(found, body, self.max_batch_bytes))
            if len(parts) == found.batch_messages and 0 < len(parts) <= MAX_PARTS:
                self._see_batch(seq, parts)
                return
        self._see_alone(seq, found)

    def _remove(self, seq: int) -> None:
        self.removed += 1
        self._changed[seq] = 0

    def _see_alone(self, seq: int, found: Metadata) -> None:
        if found.partition_key is None:
            self._remove(seq)
        elif found.uncompressed_bytes == 0:
            self._delete(found.partition_key)
            self._changed[seq] = 0
        elif found.chunks is not None and (last := self._last.get(found.partition_key)) and last.chunks == found.chunks:
            last.seqs.append(seq)
        else:
            self._keep(found.partition_key, _Kept([seq], -1, found.chunks))

    def _see_batch(self, seq: int, parts: list[tuple[str | None, bool]]) -> None:
        self._left[seq] = (1 << len(parts)) - 1
        for part, (key, is_empty) in enumerate(parts):
            if key is None:
                self.removed += 1
                self._clear(seq, part)
            elif is_empty:
                self._delete(key)
                self._clear(seq, part)
            else:
                self._keep(key, _Kept([seq], part))

    # --- keys -------------------------------------------------------------------------------------------------------

    def _keep(self, key: str, kept: _Kept) -> None:
        self._delete(key)
        self._key_bytes += len(key) + _KEY_BYTES
        if self._key_bytes > self.max_key_bytes:
            raise TooManyKeysError
        self._last[key] = kept

    def _delete(self, key: str) -> None:
        last = self._last.pop(key, None)
        if last is None:
            return
        self.removed += 1
        self._key_bytes -= len(key) + _KEY_BYTES
        for seq in last.seqs:
            if last.part < 0:
                self._changed[seq] = 0
            else:
                self._clear(seq, last.part)

    def _clear(self, seq: int, part: int) -> None:
        left = self._left[seq] & ~(1 << part)
        self._changed[seq] = self._left[seq] = left
        if not left:
            del self._left[seq]


def _superseded(change: tuple[int, int]) -> bytes:
    seq, left = change
    words = []
    while left:
        words.append(left & WORD)
        left >>= 64
    head = ffi.new("struct superseded *", {"seq": seq, "words": len(words)})
    return bytes(ffi.buffer(head)) + bytes(ffi.buffer(ffi.new("uint64_t[]", words)))


def _parts(found: Metadata, body: bytes, most: int) -> Iterator[tuple[str | None, bool]]:
    """Yields the key of each message of a batch, and whether it is empty. Stops early where the batch is damaged."""
    payload = bytes(metadata_module.uncompressed(found, body, most))
    at = 0
    while at + 4 <= len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        single = metadata_module.read_single(payload[at + 4 : at + 4 + size])
        if size > len(payload) - at - 4 or single is None:
            return
        key, payload_bytes = single
        at += 4 + size + payload_bytes
        if at > len(payload):
            return
        yield key, payload_bytes == 0
