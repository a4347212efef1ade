"""Sends records of a log to an HTTP client. The kernel sends large pieces from its page cache. Small ones are gathered
first, so that a topic whose records lie among those of many others does not cost a system call for each message.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import IO, Final, cast

import numpy as np
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.pipeline.giving_way import GiveWay
from mq_shards.shards.reader.runs import Runs
from mq_shards.shards.reader.scan import gather

SENDFILE_BYTES: Final = 64 << 10  # a piece of this size or more is sent by a call of its own
SENDFILE_MOST: Final = 4 << 20  # in one call, so that a client that does not read is noticed
GATHER_BYTES: Final = 256 << 10
SCRATCH_BYTES: Final = 512 << 10
SEND_S: Final = 30.0  # for one piece
_SHORTER: Final = "a segment is shorter than its index says"


class _File(io.RawIOBase):
    """Shows a descriptor to the event loop as a file to send from. The descriptor still belongs to the run."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return offset  # the loop passes the offset with each call


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a reply: `data`, or if that is empty a part of a file."""

    data: bytes
    fd: int = -1
    offset: int = 0
    length: int = 0


async def send(
    request: Request,
    headers: Mapping[str, str],
    found: Sequence[Runs],
    threads: Executor,
    way: GiveWay,
    head: bytes = b"",
) -> None:
    """Sends the whole reply, `head` first. If it cannot be finished, closes the connection: the client sees that the
    reply is too short."""
    try:
        request.begin(200, headers, len(head) + sum(runs.size for runs in found))
        if head:
            async with asyncio.timeout(SEND_S):
                await request.write(head)
        for pieces in _together(_pieces(found)):
            await way.turn()
            await _send_pieces(request, pieces, threads)
    except ConnectionError:
        pass  # the client has closed the connection
    except (OSError, TimeoutError, RuntimeError):
        request.cut()
        raise


async def _send_pieces(request: Request, pieces: list[_Piece], threads: Executor) -> None:
    one = pieces[0]
    if len(pieces) > 1 or one.length < SENDFILE_BYTES:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SEND_S):
            await request.write(await loop.run_in_executor(threads, _gathered, pieces))
    elif request.is_encrypted:  # has to be encrypted here: the kernel cannot send it from the file
        await _send_read(request, one.fd, one.offset, one.length, threads)
    else:
        await _send_file(request, cast(IO[bytes], _File(one.fd)), one.offset, one.length)


async def _send_file(request: Request, file: IO[bytes], offset: int, length: int) -> None:
    loop = asyncio.get_running_loop()
    while length > 0:
        async with asyncio.timeout(SEND_S):
            most = min(length, SENDFILE_MOST)
            sent = await loop.sendfile(request.transport, file, offset, most, fallback=False)
        if sent == 0:
            raise OSError(_SHORTER)
        request.sent(sent)
        offset += sent
        length -= sent


async def _send_read(request: Request, fd: int, offset: int, length: int, threads: Executor) -> None:
    loop = asyncio.get_running_loop()
    while length > 0:
        data = await loop.run_in_executor(threads, os.pread, fd, min(length, GATHER_BYTES), offset)
        if not data:
            raise OSError(_SHORTER)
        async with asyncio.timeout(SEND_S):
            await request.write(data)
        offset += len(data)
        length -= len(data)


def _pieces(found: Iterable[Runs]) -> Iterator[_Piece]:
    for runs in found:
        for run in runs.runs:
            yield _Piece(run.head)
            for offset, length in zip(run.offsets, run.lengths, strict=True):
                yield _Piece(b"", run.fd, offset, length)


def _together(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Groups pieces that are sent together; a large piece is sent alone."""
    gathered: list[_Piece] = []
    size = 0
    for piece in pieces:
        more = len(piece.data) + piece.length
        if gathered and (piece.length >= SENDFILE_BYTES or size + more > GATHER_BYTES):
            yield gathered
            gathered, size = [], 0
        if piece.length >= SENDFILE_BYTES:
            yield [piece]
            continue
        gathered.append(piece)
        size += more
    if gathered:
        yield gathered


def _gathered(pieces: list[_Piece]) -> bytes:
    """Reads pieces and joins them. Reads those of one file together, whatever their order. Runs in a thread."""
    out: list[bytes | memoryview] = [piece.data for piece in pieces]
    scratch = bytearray(SCRATCH_BYTES)
    of_file = sorted((piece.fd, piece.offset, n) for n, piece in enumerate(pieces) if piece.length)
    for fd, places in groupby(of_file, key=itemgetter(0)):
        numbers = [n for _, _, n in places]
        lengths = [pieces[n].length for n in numbers]
        read = bytearray(sum(lengths))
        offsets = np.array([pieces[n].offset for n in numbers], "<u8")
        gather(fd, offsets, np.array(lengths, "<u4"), read, scratch)
        at, view = 0, memoryview(read)
        for n, length in zip(numbers, lengths, strict=True):
            out[n] = view[at : at + length]
            at += length
    return b"".join(out)
