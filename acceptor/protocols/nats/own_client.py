"""The server's own client of an account: Python publishes and subscribes over a socket pair, as any client does.

So it reaches all acceptors and servers. It is not shown in monitoring, and not counted. What the codec does not take in
time is dropped, so nothing waits for it. If its connection ends, a new one is made.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.protocols.nats.client import HEADERS
from mq_shards.acceptor.protocols.nats.who import User

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocols.nats.admission import Admission
    from mq_shards.acceptor.watched import Watched

UNSENT_BYTES: Final = 64 << 20  # as for other clients
RECEIVE_BYTES: Final = 64 << 10

log = logging.getLogger(__name__)

# Called with a message's subject, reply ("": none) and payload; headers are left out.
Heard = Callable[[str, str, bytes], None]


class OwnClient:
    def __init__(self, engine: Engine, protocol: int, watched: Watched, account: str, heard: Heard) -> None:
        self.account: Final = account
        self._engine = engine
        self._protocol = protocol
        self._watched = watched
        self._heard = heard
        self._subjects: list[tuple[str, str]] = []  # subjects, each with a queue group; "": none
        self._in = bytearray()
        self._out = bytearray()
        self._connect()

    def _connect(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.conn = self._engine.adopt(theirs.detach(), self._protocol)
        self._socket: socket.socket | None = ours
        self._watched.watch(ours.fileno(), self._ready)

    def close(self) -> None:
        if self._socket is not None:
            self._watched.forget(self._socket.fileno())
            self._socket.close()
        self._socket = None
        self._in.clear()
        self._out.clear()

    def connect_again(self) -> None:
        """Connects and subscribes again after the connection has ended. Unsent data is lost."""
        self.close()
        self._connect()
        self._send(b"".join(self._line(number) for number in range(len(self._subjects))))

    def subscribe(self, subject: str, queue: str = "") -> None:
        """Subscribes, unless it has subscribed to this already."""
        if (subject, queue) not in self._subjects:
            self._subjects.append((subject, queue))
            self._send(self._line(len(self._subjects) - 1))

    def _line(self, number: int) -> bytes:
        subject, queue = self._subjects[number]
        return f"SUB {subject} {queue} {number + 1}\r\n".encode()

    def publish(self, subject: str, content: bytes, reply: str = "", header: bytes = b"") -> None:
        sizes = f"{len(header)} {len(header) + len(content)}" if header else f"{len(content)}"
        line = f"{'HPUB' if header else 'PUB'} {subject} {reply} {sizes}\r\n"
        self._send(line.encode() + header + content + b"\r\n")

    def _send(self, data: bytes) -> None:
        if self._out and len(self._out) + len(data) > UNSENT_BYTES:
            return
        self._out += data
        self._flush()

    def _flush(self) -> None:
        if self._socket is None:
            self._out.clear()
            return
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()
        self._watched.watch(self._socket.fileno(), self._ready, bool(self._out))

    def _ready(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            self._flush()
            return
        except OSError:
            data = b""
        if not data:
            self.close()  # OwnClients.closed() will be called
            return
        self._in += data
        while self._take():
            pass
        self._flush()

    def _take(self) -> bool:
        """Handles one line and its payload; False if they have not arrived completely."""
        line_end = self._in.find(b"\r\n")
        if line_end < 0:
            return False
        words = bytes(self._in[:line_end]).decode(errors="replace").split(" ")
        if words[0] not in ("MSG", "HMSG"):
            del self._in[: line_end + 2]
            if words[0] == "PING":
                self._send(b"PONG\r\n")
            return True
        size = int(words[-1])
        header_bytes = int(words.pop(-2)) if words[0] == "HMSG" else 0
        end = line_end + 2 + size + 2
        if len(self._in) < end:
            return False
        body = bytes(self._in[line_end + 2 + header_bytes : end - 2])
        del self._in[:end]
        try:
            self._heard(words[1], words[3] if len(words) == 5 else "", body)
        except Exception:
            log.exception("a message to %s", words[1])
        return True


class OwnClients:
    """All own clients of an acceptor, which are admitted without authentication."""

    def __init__(self, engine: Engine, admission: Admission) -> None:
        self._engine = engine
        self._admission = admission
        self._by_conn: dict[int, OwnClient] = {}

    def add(self, client: OwnClient) -> None:
        self._by_conn[client.conn] = client

    def drop(self, client: OwnClient) -> None:
        self._by_conn.pop(client.conn, None)
        client.close()

    def closed(self, conn: int) -> None:
        """A connection has ended. If it was an own client's, it connects again; the old number may be reused."""
        client = self._by_conn.pop(conn, None)
        if client is not None:
            log.warning("the server's own client of account %s has been cut off; it comes again", client.account)
            try:
                client.connect_again()
            except OSError:
                log.exception("it cannot come")
                return
            self.add(client)

    def close(self) -> None:
        for client in list(self._by_conn.values()):
            self.drop(client)

    def admit(self, conn: int) -> bool:
        """Admits a new connection if it is an own client's; otherwise returns False."""
        client = self._by_conn.get(conn)
        if client is not None:
            self._engine.call(conn, "of-server")
            self._engine.call(conn, "flags", HEADERS)
            self._admission.admit(conn, User(account=client.account))
            self._engine.resume(conn)
        return client is not None
