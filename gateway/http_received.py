"""The body of one request as it is received: of a length that the head gives, or in chunks."""

from __future__ import annotations

from typing import Final, Protocol

from mq_shards.gateway.http_parse import MAX_CHUNK_LINE_BYTES, Head, chunk_bytes

READ_BYTES: Final = 16 << 10  # read ahead for a connection; its buffer may reach twice that
BODY_READ_BYTES: Final = 256 << 10  # in one read, of a body that a handler wants
CHUNK_WASTE_BYTES: Final = 16 << 10  # of chunk lines, beyond 16 for each and twice what the chunks hold


class Input(Protocol):
    """What comes on a connection."""

    @property
    def buffer(self) -> bytearray:
        """Received bytes that are not used yet."""
        ...

    async def more(self, want: int) -> None:
        """Waits for more input. ConnectionError when no more will come."""
        ...

    def take(self, most: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...


class ReceivedBody:
    def __init__(self, connection: Input, head: Head) -> None:
        self.content_length: Final = head.body_bytes
        self.body_ended = head.body_bytes == 0
        self.must_say_continue = head.expects_continue
        self._input = connection
        self._left = head.body_bytes or 0  # unread bytes of the body, or of its chunk
        self._in_chunks = head.body_bytes is None
        self._chunks = 0
        self._waste = 0

    def may_be_longer_than(self, most: int) -> bool:
        """Whether more than that may be left to be read."""
        return self._in_chunks or self._left > most

    def part_now(self, most: int) -> bytes:
        """Takes what was received of a body without chunks; b"" when there is nothing."""
        if self._in_chunks or self.body_ended:
            return b""
        data = self._input.take(min(most, self._left))
        self._left -= len(data)
        self.body_ended = self._left == 0
        return data

    async def part(self, most: int) -> bytes:
        """Waits for the next bytes of the body; b"" at its end. ConnectionError when the client goes or breaks the
        format."""
        if self.must_say_continue and not self.body_ended:
            self.must_say_continue = False
            self._input.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self.body_ended:
            if self._in_chunks and self._left == 0:
                await self._next_chunk()
            elif data := self._input.take(min(most, self._left)):
                self._left -= len(data)
                self.body_ended = self._left == 0 and not self._in_chunks
                return data
            else:
                await self._input.more(BODY_READ_BYTES)
        return b""

    async def _next_chunk(self) -> None:
        if self._chunks and await self._line() != b"\r\n":
            raise ConnectionError("a chunk does not end where it should")
        self._chunks += 1
        line = await self._line()
        try:
            self._left = chunk_bytes(line)
        except ValueError as error:
            raise ConnectionError(str(error)) from None
        self._waste = max(0, self._waste + len(line) - 14 - 2 * self._left)
        if self._waste > CHUNK_WASTE_BYTES:
            raise ConnectionError("the chunks of a body hold too little")
        if self._left == 0:
            trailers = 0
            while len(line := await self._line()) > 2 or line.strip():
                trailers += len(line)
                if b":" not in line[1:]:
                    raise ConnectionError("a trailer that is no header")
                if trailers > MAX_CHUNK_LINE_BYTES:
                    raise ConnectionError("too much behind the last chunk")
            self.body_ended = True

    async def _line(self) -> bytes:
        while (at := self._input.buffer.find(b"\n")) < 0:
            if len(self._input.buffer) > MAX_CHUNK_LINE_BYTES:
                raise ConnectionError("a line in a body does not end")
            await self._input.more(READ_BYTES)
        return self._input.take(at + 1)
