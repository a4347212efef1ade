"""TLS handshakes that say why they fail: to the client by TLS's own alert, which asyncio does not send, and to whoever
reads the journal."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from ssl import MemoryBIO, SSLContext, SSLError, SSLObject, SSLWantReadError, SSLWantWriteError
from typing import Final

from mq_shards.acceptor.filters.tls import why


class Shaking:
    """For one connection in the place of its SSLContext. `failed` is called with the reason."""

    def __init__(self, context: SSLContext, sock: socket.socket, failed: Callable[[str], None]) -> None:
        self._context: Final = context
        self._sock: Final = sock
        self._failed: Final = failed

    def wrap_bio(
        self, incoming: MemoryBIO, outgoing: MemoryBIO, server_side: bool, server_hostname: str | None
    ) -> SSLObject:
        found = self._context.wrap_bio(incoming, outgoing, server_side, server_hostname)
        shake = found.do_handshake

        def do_handshake() -> None:
            try:
                shake()
            except (SSLWantReadError, SSLWantWriteError):
                raise
            except SSLError as error:
                with contextlib.suppress(OSError):  # the client is gone, or takes nothing
                    self._failed(f"tls: {why(error)}")
                    self._sock.send(outgoing.read())
                raise

        found.do_handshake = do_handshake  # type: ignore[method-assign]
        return found
