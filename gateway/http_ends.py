"""What the gateway's HTTP servers do not want: connections too many, clients that do not read, lines in the journal."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct


class Refuse(asyncio.Protocol):
    """For a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def cut(transport: asyncio.BaseTransport | None) -> None:
    """Ends a connection whose client does not read: what the kernel holds for it goes too."""
    if isinstance(transport, asyncio.Transport):
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


def quiet_logger() -> logging.Logger:
    """The library's own: what it has to say is about what strangers send, and it says it with a traceback."""
    quiet = logging.getLogger("mq_shards.gateway.aiohttp")
    quiet.setLevel(logging.CRITICAL)
    return quiet
