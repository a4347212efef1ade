"""The frames of a websocket, in the cases that csrc/acceptor/framing.c does not do: messages are compressed (RFC 7692,
without context takeover).

64 KiB of input can decompress to 66 MiB: decode() makes them a piece at a time.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final

from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.csrc._core import ffi, lib

RAW: Final = -zlib.MAX_WBITS
BEST_SPEED: Final = 1
# A sync flush ends with these bytes, which RFC 7692 leaves out of messages. The stream itself never ends: with a last
# block that is empty it does, unless the message is cut short.
FLUSHED: Final = b"\x00\x00\xff\xff"
LAST: Final = FLUSHED + b"\x01\x00\x00\xff\xff"
# Shorter messages are not worth compressing.
COMPRESS_BYTES: Final = 64

FINAL: Final = 0x80
COMPRESSED: Final = 0x40
BINARY: Final = 2
CLOSE: Final = 8
PONG: Final = 10


def frame(first: int, payload: bytes, mask: bytes = b"") -> bytes:
    """Makes a frame; `mask` is the masking key of a client's frame, empty for a server's."""
    head = ffi.new("uint8_t[]", lib.WEBSOCKET_HEAD_BYTES)
    head_bytes = lib.websocket_head(head, first, len(payload))
    said = bytearray(b"".join((ffi.buffer(head, head_bytes), mask, payload)))
    if mask:
        lib.websocket_mask(ffi.from_buffer(said), head_bytes, len(payload), int.from_bytes(mask, sys.byteorder))
    return bytes(said)


class PythonWebsocket:
    def __init__(
        self,
        say: Callable[[bytes], None],
        *,
        unmasked: bool,
        frame_bytes: int,
        masks: bool = False,
        ended: Callable[[bytes], None] | None = None,
    ) -> None:
        """`say` is called with frames that must be sent at once. `unmasked`: incoming frames are not masked.
        `frame_bytes`: the most payload in a compressed frame of ours. `masks`: our frames are masked.
        `ended` is given the payload of our closing frame when the other side's has come, and calls end() when all that
        came before has been answered; without it the frame is sent at once."""
        self._say = say
        self._masks = masks
        self._tell_end = ended
        self._websocket: Any = ffi.new("struct websocket *")
        self._websocket.unmasked = unmasked
        self._websocket.compresses = True
        self._frame_bytes = frame_bytes
        self._made: Any = ffi.new("size_t *")
        self._room: Any = ffi.new("uint8_t[]", PIECE_BYTES)
        self._rest = b""  # received bytes ...
        self._at = 0  # ... and how many of them have been used
        self._inflater: Any = None  # of the message that is being received
        self._is_whole = False  # that message has been received to its end
        self._more = False  # the inflater may have more output left
        self.ended = self._closing_said = False

    @property
    def pending(self) -> bool:
        return not self.ended and (self._more or self._at < len(self._rest))

    # --- from the client --------------------------------------------------------------------------------------------

    def decode(self, data: bytes) -> bytes:
        if data:
            self._rest, self._at = self._rest[self._at :] + data, 0
        parts: list[bytes] = []
        made = 0
        while self.pending and made < PIECE_BYTES and len(parts) < PIECE_PARTS:
            parts.append(self._inflate(b"") if self._more else self._take())
            made += len(parts[-1])
        return b"".join(parts)

    def _take(self) -> bytes:
        """Uses received bytes up to the next event (end of a message, control frame); returns the payload before it."""
        websocket = self._websocket
        # Uncompressed payload is returned as it is, so take one piece at most.
        bytes_count = min(len(self._rest) - self._at, PIECE_BYTES)
        here = ffi.from_buffer("uint8_t[]", self._rest) + self._at
        self._at += lib.websocket_take(websocket, here, bytes_count, self._room, self._made)
        payload = bytes(ffi.buffer(self._room, self._made[0]))
        found = websocket.found
        if found == lib.WEBSOCKET_ENDED:
            self.ended = True
            if self._tell_end is not None:
                self._tell_end(self._control())
            else:
                self.end(self._frame(FINAL | CLOSE, self._control()))
            return b"" if websocket.is_compressed else payload
        if found == lib.WEBSOCKET_CONTROL and websocket.opcode == lib.WEBSOCKET_PING and not self._closing_said:
            self._say(self._frame(FINAL | PONG, self._control()))
        if not websocket.is_compressed:
            return payload
        self._is_whole = found == lib.WEBSOCKET_MESSAGE
        if self._is_whole:
            payload += LAST
        return self._inflate(payload) if payload else b""

    def _control(self) -> bytes:
        return bytes(ffi.buffer(self._websocket.control, self._websocket.control_bytes))

    def _inflate(self, payload: bytes) -> bytes:
        if self._inflater is None:
            self._inflater = zlib.decompressobj(RAW)
        inflater = self._inflater
        piece = b""
        # What follows the end of a message's deflate stream is ignored.
        if not inflater.eof:
            try:
                piece = inflater.decompress(inflater.unconsumed_tail + payload, PIECE_BYTES)
            except zlib.error as error:
                raise FilterError(f"websocket: {error}") from None
        # A full piece may have left something in the inflater, though it has taken all input.
        self._more = not inflater.eof and len(piece) == PIECE_BYTES
        if self._is_whole and not self._more:
            if not inflater.eof:
                raise FilterError("websocket: a compressed message is cut short")
            self._inflater = None
        return bytes(piece)

    # --- to the client ----------------------------------------------------------------------------------------------

    def _frame(self, first: int, payload: bytes) -> bytes:
        return frame(first, payload, os.urandom(4) if self._masks else b"")

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        if len(data) <= COMPRESS_BYTES:
            return self._frame(FINAL | BINARY, data)
        compressor = zlib.compressobj(BEST_SPEED, zlib.DEFLATED, RAW)
        packed = compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)
        packed = packed.removesuffix(FLUSHED)
        frames = []
        for at in range(0, len(packed), self._frame_bytes):
            part = packed[at : at + self._frame_bytes]
            first = (BINARY | COMPRESSED) if at == 0 else 0
            if at + self._frame_bytes >= len(packed):
                first |= FINAL
            frames.append(self._frame(first, part))
        return b"".join(frames)

    def end(self, last: bytes) -> None:
        """Sends the close frame `last`, unless one was sent before."""
        if not self._closing_said:
            self._closing_said = True
            self._say(last)
