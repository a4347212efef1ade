"""Records of a log on their way to an HTTP client: the kernel sends large pieces from its page cache, small ones are
gathered first, so that a topic among many others costs no system call a message.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from typing import IO, Final, cast

import numpy as np
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.pipeline.giving_way import GiveWay
from mq_shards.shards.reader.runs import Run, Runs
from mq_shards.shards.reader.scan import gather

SENDFILE_BYTES: Final = 64 << 10  # from so many on a piece is worth a call of its own
SENDFILE_MOST: Final = 4 << 20  # in one call, so that a client that does not read is noticed
GATHER_BYTES: Final = 256 << 10
SCRATCH_BYTES: Final = 512 << 10
SEND_S: Final = 30.0  # for one piece
_SHORTER: Final = "a segment is shorter than its index says"


class _File(io.RawIOBase):
    """What the event loop wants of a file that it sends from: a descriptor, which remains the run's."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return offset  # the loop names the place in each call


async def send(request: Request, headers: Mapping[str, str], found: Runs, threads: Executor, way: GiveWay) -> None:
    """The whole reply. A connection on which it cannot be finished is cut: the client sees that the length is wrong."""
    try:
        request.begin(200, headers, found.size)
        for run in found.runs:
            await _send_run(request, run, threads, way)
    except ConnectionError:
        pass  # it does not want it any more
    except (OSError, TimeoutError, RuntimeError):
        request.cut()
        raise


async def _send_run(request: Request, run: Run, threads: Executor, way: GiveWay) -> None:
    loop = asyncio.get_running_loop()
    file = cast(IO[bytes], _File(run.fd))
    async with asyncio.timeout(SEND_S):
        await request.write(run.head)
    for low, high in _pieces(run):
        await way.turn()
        if high > low + 1 or run.lengths[low] < SENDFILE_BYTES:
            async with asyncio.timeout(SEND_S):
                await request.write(await loop.run_in_executor(threads, _gathered, run, low, high))
        elif request.is_encrypted:  # it has to come into this process: the kernel cannot send it from the file
            await _send_read(request, run.fd, run.offsets[low], run.lengths[low], threads)
        else:
            await _send_file(request, file, run.offsets[low], run.lengths[low])


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


def _pieces(run: Run) -> Iterator[tuple[int, int]]:
    """Which pieces of the file go out together: large ones alone."""
    low = size = 0
    for n, length in enumerate(run.lengths):
        if n > low and (length >= SENDFILE_BYTES or size + length > GATHER_BYTES):
            yield low, n
            low, size = n, 0
        size += length
        if length >= SENDFILE_BYTES:
            yield low, n + 1
            low, size = n + 1, 0
    if low < len(run.lengths):
        yield low, len(run.lengths)


def _gathered(run: Run, low: int, high: int) -> bytearray:
    lengths = run.lengths[low:high]
    out = bytearray(sum(lengths))
    gather(run.fd, np.array(run.offsets[low:high], "<u8"), np.array(lengths, "<u4"), out, bytearray(SCRATCH_BYTES))
    return out
