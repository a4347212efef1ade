"""Who guesses passwords waits; others log in meanwhile."""

from __future__ import annotations

import base64
import contextlib
import socket
from pathlib import Path

from tests.access.broker import BOSS, CLERK, HOST, SHOP, TIMEOUT_S, guarded
from tests.ready import readable
from tests.servers import wait_until

ATTACKERS = {"http": "127.0.0.5", "nats": "127.0.0.6", "nsq": "127.0.0.7"}
GUESSES = 40


def guess(port: int, request: bytes, attacker: str) -> socket.socket:
    client = socket.create_connection((HOST, port), timeout=TIMEOUT_S, source_address=(attacker, 0))
    client.sendall(request)
    return client


def test_guesses_wait_and_others_do_not(tmp_path: Path) -> None:
    with guarded(tmp_path, (BOSS, SHOP, CLERK)) as broker, contextlib.ExitStack() as stack:
        basic = base64.b64encode(b"boss:guess").decode()
        http = f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {basic}\r\n\r\n".encode()
        nats = b'CONNECT {"user":"boss","pass":"guess"}\r\nPING\r\n'
        secret = b"boss:guess"
        nsq = b"  V2AUTH\n" + len(secret).to_bytes(4, "big") + secret
        guesses = {
            scheme: [
                stack.enter_context(contextlib.closing(guess(broker.ports[scheme], one, ATTACKERS[scheme])))
                for _ in range(GUESSES)
            ]
            for scheme, one in (("http", http), ("nats", nats), ("nsq", nsq))
        }
        # Who is right is let in while they wait.
        right = base64.b64encode(f"{CLERK.name}:{CLERK.password}".encode()).decode()
        assert broker.request("GET", "/v1/topics", headers={"Authorization": f"Basic {right}"})[0] == 200
        waiting = {scheme: sum(not answered(one) for one in clients) for scheme, clients in guesses.items()}
        assert all(count >= 3 for count in waiting.values()), waiting
        # From there too, with a token: nobody guesses one.
        token = f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SHOP.token}\r\n\r\n".encode()
        with contextlib.closing(guess(broker.ports["http"], token, ATTACKERS["http"])) as client:
            assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_guesses_by_several_protocols_and_processes_are_counted_together(tmp_path: Path) -> None:
    attacker = "127.0.0.8"
    with guarded(tmp_path, (BOSS, SHOP), "--acceptors=2") as broker, contextlib.ExitStack() as stack:
        secret = b"wrong-token"
        nsq = b"  V2AUTH\n" + len(secret).to_bytes(4, "big") + secret

        def guesses(count: int) -> list[socket.socket]:
            made = [guess(broker.ports["nsq"], nsq, attacker) for _ in range(count)]
            return [stack.enter_context(contextlib.closing(one)) for one in made]

        clients = guesses(GUESSES)
        seen: set[int] = set()

        def have_begun() -> bool:
            seen.update(n for n, one in enumerate(clients) if n not in seen and answered(one))
            return len(seen) >= 8  # the next, whoever is that, waits for two seconds

        wait_until(have_begun, "some were refused, and the others wait", 60)
        http = b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n"
        with contextlib.closing(guess(broker.ports["http"], http, attacker)) as client:
            assert readable([client], 1.5) == [], "it waits behind those of the acceptors"
        with contextlib.closing(guess(broker.ports["http"], http, "127.0.0.9")) as client:
            assert client.recv(100).startswith(b"HTTP/1.1 401"), "who comes from elsewhere does not"


def answered(client: socket.socket) -> bool:
    """The login was looked at, or refused unseen: the last that came is no greeting."""
    client.setblocking(False)
    try:
        data = client.recv(1 << 16)
    except BlockingIOError:
        return False
    return not data or b"-ERR" in data or b"401" in data or b"E_AUTH" in data
