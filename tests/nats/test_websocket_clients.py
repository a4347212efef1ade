"""What clients of websockets are served: compressed, encrypted, slow, in large and small pieces, and real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.request
import zlib
from collections.abc import Iterator

import nats
import pytest
from mq_shards.acceptor.protocols.nats.websocket_upgrade import Terms, UpgradeError, upgrade

from tests.nats.servers import nats_server, running
from tests.nats.test_operating import until_true
from tests.nats.websocket_wire import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUES,
    FINAL,
    PING,
    PONG,
    SERVERS,
    Websocket,
    frame,
    request,
    serving,
)
from tests.nsq.certificates import Certificates, make
from tests.servers import free_port

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
]
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
DEFLATE = request("Sec-WebSocket-Extensions: permessage-deflate")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def port(kind: int) -> Iterator[int]:
    with serving(kind, "compression: true") as port:
        yield port


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


def inflated(client: Websocket, count: int) -> bytes:
    """So many bytes of what messages say, by their frames."""
    found, message = b"", b""
    compressed = False
    while len(found) < count:
        before = len(client.stream)
        assert client.hear()
        payload, first = client.stream[before:], client.first_bytes[-1]
        if first & 15:
            compressed = bool(first & COMPRESSED)
        message += payload
        if first & FINAL:
            found += zlib.decompressobj(-15).decompress(message + b"\0\0\xff\xff") if compressed else message
            message = b""
    return found


# --- compression ------------------------------------------------------------------------------------------------------


def test_messages_are_compressed_both_ways(port: int) -> None:
    with Websocket(port, asked=DEFLATE) as client:
        assert b"permessage-deflate" in client.head
        info = inflated(client, 1)
        assert info.startswith(b"INFO {") and info.endswith(b"\r\n")
        body = b"0123456789" * 1000
        said = QUIET + b"SUB a 1\r\nPUB a %d\r\n%s\r\n" % (len(body), body)
        client.send(frame(BINARY, deflated(said), first=FINAL | COMPRESSED))
        wanted = b"MSG a 1 10000\r\n" + body + b"\r\n"
        client.sizes.clear()
        assert inflated(client, len(wanted)) == wanted
        assert sum(client.sizes) < 1000, "it came compressed"
        # In pieces, and one that is not compressed in between, as each is free to be.
        packed = deflated(b"PUB a 2\r\nhi\r\n")
        client.send(frame(BINARY, packed[:3], first=COMPRESSED) + frame(PING, b"x") + frame(CONTINUES, packed[3:]))
        client.send(frame(BINARY, b"PING\r\n"))
        assert inflated(client, 21) == b"MSG a 1 2\r\nhi\r\nPONG\r\n"
        assert (PONG, b"x") in client.controls


def test_what_is_compressed_says_goodbye_too(port: int) -> None:
    with Websocket(port, asked=DEFLATE) as client:
        inflated(client, 1)
        client.send(frame(BINARY, b'CONNECT {"verbose":false,"protocol":2}\r\n'))
        client.to_the_end()
        assert client.controls == [(CLOSE, b"\x03\xeaBad Client Protocol Version")]
    with Websocket(port, asked=DEFLATE) as client:
        client.send(frame(CLOSE, b"\x03\xe8"))
        client.to_the_end()
        assert client.controls == [(CLOSE, b"\x03\xe8")]


@pytest.mark.parametrize("asked", [request(), DEFLATE], ids=["plain", "compressed"])
def test_what_comes_before_a_closing_frame_counts_and_is_answered_before_ours(port: int, asked: bytes) -> None:
    with Websocket(port) as listener, Websocket(port, asked=asked) as hasty:
        listener.say(QUIET + b"SUB parting 1\r\nPING\r\n")
        listener.until(b"PONG\r\n")
        inflated(hasty, 1)
        # CONNECT is not judged yet when the closing frame comes.
        hasty.send(frame(BINARY, QUIET + b"PUB parting 1\r\nx\r\nPING\r\n") + frame(CLOSE, b"\x03\xe8"))
        while not hasty.controls:
            assert hasty.hear()
        assert hasty.stream.endswith(b"PONG\r\n")
        assert hasty.controls == [(CLOSE, b"\x03\xe8")]
        listener.until(b"MSG parting 1 1\r\nx\r\n")


def test_what_does_not_inflate_ends_it(port: int) -> None:
    with Websocket(port, asked=DEFLATE) as client:
        client.send(frame(BINARY, b"\xff" * 100, first=FINAL | COMPRESSED))
        client.to_the_end()


def test_a_bomb_is_taken_in_pieces() -> None:
    """A hundred megabytes of blanks in 100 KB: others are served while they are looked at, and nobody holds them."""
    with serving(1, "compression: true") as port, Websocket(port) as other, Websocket(port, asked=DEFLATE) as client:
        inflated(client, 1)
        other.say(QUIET)
        bomb = deflated(b"PING\r\n" + b" " * (100 << 20))
        client.send(frame(BINARY, bomb, first=FINAL | COMPRESSED))
        slowest = 0.0
        for _ in range(50):
            began = time.monotonic()
            other.stream = b""
            other.say(b"PING\r\n")
            other.until(b"PONG\r\n")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_bytes_may_come_one_by_one(port: int) -> None:
    with Websocket(port) as client:
        for byte in frame(BINARY, QUIET + b"SUB a 1\r\nPUB a 3\r\nhey\r\nPING\r\n"):
            client.send(bytes([byte]))
        client.until(b"PONG\r\n")
        assert b"MSG a 1 3\r\nhey\r\n" in client.stream


@pytest.mark.parametrize("size", [125, 126, 65535, 65536, 1 << 20])
def test_payloads_of_all_sizes(port: int, size: int) -> None:
    body = (bytes(at * 7 % 251 for at in range(251)) * (size // 251 + 1))[:size]
    with Websocket(port) as client:
        client.say(QUIET + b"SUB a 1\r\n")
        client.say(b"PUB a %d\r\n%s\r\n" % (size, body))
        assert client.until(body + b"\r\n").endswith(b"MSG a 1 %d\r\n%s\r\n" % (size, body))


def test_who_need_not_mask_does_not(port: int) -> None:
    with Websocket(port, asked=request("Nats-No-Masking: true")) as client:
        client.send(frame(BINARY, QUIET + b"SUB a 1\r\nPUB a 3\r\nhey\r\n", mask=None))
        client.until(b"MSG a 1 3\r\nhey\r\n")


def test_frames_for_browsers_are_small(port: int) -> None:
    with Websocket(port, asked=request("User-Agent: Mozilla/5.0 (X11)")) as client:
        client.until(b"\r\n")
        client.say(QUIET + b"SUB a 1\r\nPUB a 100000\r\n" + b"x" * 100000 + b"\r\nPING\r\n")
        client.until(b"PONG\r\n")
        assert max(client.sizes) <= 4096


def test_clients_of_all_kinds_hear_each_other(kind: int, port: int) -> None:
    with Websocket(port) as one, Websocket(port, asked=DEFLATE) as other:
        inflated(other, 1)
        one.say(QUIET + b"SUB a 1\r\nPING\r\n")
        one.until(b"PONG\r\n")
        other.send(frame(BINARY, QUIET + b"PUB a 2\r\nhi\r\n"))
        one.until(b"MSG a 1 2\r\nhi\r\n")


def test_who_pings_and_never_reads_holds_no_memory() -> None:
    with serving(1) as port, Websocket(port) as client:
        client.socket.settimeout(1)
        some = frame(PING, b"x" * 125) * 500
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200 << 20:
                client.socket.sendall(some)
                sent += len(some)
        with Websocket(port) as other:
            other.say(QUIET + b"PING\r\n")
            other.until(b"PONG\r\n")


def test_a_server_that_stops_says_so(kind: int) -> None:
    with (
        serving(kind, "compression: true") as port,
        Websocket(port) as plain,
        Websocket(port, asked=DEFLATE) as compressed,
    ):
        plain.until(b"INFO")
        inflated(compressed, 1)
        SERVERS[port].process.terminate()
        for client in (plain, compressed):
            client.to_the_end()
            # A nats-server that is busy ends before it has said so.
            said = [(CLOSE, b"\x03\xe9Server Shutdown")]
            assert client.controls == said or (kind == 0 and not client.controls)


# --- who comes --------------------------------------------------------------------------------------------------------


def info(client: Websocket) -> dict[str, object]:
    found: dict[str, object] = json.loads(client.until(b"\r\n").partition(b"\r\n")[0][5:])
    return found


def test_a_request_must_come_in_time(kind: int) -> None:
    with serving(kind, "handshake_timeout: 1") as port:
        began = time.monotonic()
        with Websocket(port, asked=b"GET / HTTP/1.1\r\n") as client:
            assert client.closed
        assert 0.5 < time.monotonic() - began < 4


def test_only_pages_from_here(kind: int) -> None:
    with serving(kind, "same_origin: true") as port:
        for origin, status in [("http://127.0.0.1:8080", b"101"), ("http://127.0.0.1", b"403"), ("null", b"403"),
                               ("https://127.0.0.1:8080", b"403"), ("", b"101")]:  # fmt: skip
            with Websocket(port, asked=request(f"Origin: {origin}") if origin else request()) as client:
                assert client.head.split(b" ")[1] == status, origin


def test_pages_from_anywhere_where_a_nats_server_lets_them_come(kind: int) -> None:
    with serving(kind, "same_origin: false") as port:
        for origin in ("https://evil.example", "null", "http://127.0.0.1"):
            with Websocket(port, asked=request(f"Origin: {origin}")) as client:
                assert client.head.split(b" ")[1] == b"101", origin


NEAR = Terms()
PAGES = [
    ("127.0.0.1:8080", "http://127.0.0.1:8080", NEAR, True),
    ("127.0.0.1:8080", "http://127.0.0.1", NEAR, True),
    ("localhost:8080", "http://localhost:3000", NEAR, True),
    ("192.168.1.7:8080", "http://localhost:3000", NEAR, True),  # a page that is being written
    ("192.168.1.7:8080", "https://192.168.1.7", NEAR, True),
    ("[fe80::1]:8080", "http://[fe80::1]", NEAR, True),
    ("broker", "http://BROKER:3000", NEAR, True),
    ("broker.example", "http://[::1]:3000", NEAR, True),
    ("broker.example", "http://app.localhost", NEAR, True),
    ("broker.example", "", NEAR, True),  # no browser
    ("broker.example", "https://broker.example", Terms(encrypted=True), True),
    ("broker.example", "http://broker.example", NEAR, False),  # a page can make its name mean this host
    ("127.0.0.1:8080", "https://evil.example", NEAR, False),
    ("localhost:8080", "http://localhost.evil.example", NEAR, False),
    ("127.0.0.1:8080", "http://192.168.1.7", NEAR, False),
    ("127.0.0.1:8080", "null", NEAR, False),
    ("127.0.0.1:8080", "http://[", NEAR, False),
    ("127.0.0.1:99999", "http://127.0.0.1", NEAR, False),
    ("broker.example", "https://evil.example", Terms(encrypted=True), False),
    ("127.0.0.1:8080", "https://evil.example", Terms(allowed_origins=["*"]), True),
    ("127.0.0.1:8080", "null", Terms(allowed_origins=["*"]), True),
    ("127.0.0.1:8080", "https://evil.example", Terms(allowed_origins=["*"], same_origin=True), False),
    ("127.0.0.1:8080", "https://good.example", Terms(allowed_origins=["https://good.example"]), True),
    ("127.0.0.1:8080", "http://localhost", Terms(allowed_origins=["https://good.example"]), False),
]  # fmt: skip


@pytest.mark.parametrize(("host", "origin", "terms", "may"), PAGES)
def test_which_pages_may_come(host: str, origin: str, terms: Terms, may: bool) -> None:
    asked = request(f"Host: {host}", *([f"Origin: {origin}"] if origin else []), without="Host")
    with contextlib.nullcontext() if may else pytest.raises(UpgradeError, match="origin not allowed"):
        assert upgrade(asked.removesuffix(b"\r\n\r\n"), terms).answer.startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(("more", "status"), [([], b"403"), (["--set", "nats.websocket-allowed-origins=*"], b"101")])
def test_a_listener_of_our_own_serves_pages_of_other_sites_only_if_told(more: list[str], status: bytes) -> None:
    port = free_port()
    with running(1, arguments=["--listen", f"nats-ws://127.0.0.1:{port}", *more]):
        for asked, found in [(request("Origin: https://evil.example"), status), (request(), b"101"),
                             (request("Origin: http://localhost:3000"), b"101")]:  # fmt: skip
            with Websocket(port, asked=asked) as client:
                assert client.head.split(b" ")[1] == found


def test_users_of_websockets_alone(kind: int) -> None:
    with serving(kind, "authorization { user: one, password: two, timeout: 1 }") as port:
        with Websocket(port) as client:
            assert info(client)["auth_required"] is True
            client.say(b'CONNECT {"verbose":false,"user":"one","pass":"two"}\r\nPING\r\n')
            client.until(b"PONG\r\n")
        with Websocket(port) as client:
            client.say(b'CONNECT {"verbose":false,"user":"one","pass":"no"}\r\n')
            client.to_the_end()
            assert b"-ERR 'Authorization Violation'\r\n" in client.stream
            assert client.controls == [(CLOSE, b"\x03\xf0Authentication Failure")]
        with Websocket(port) as client:
            client.to_the_end()
            assert b"-ERR 'Authentication Timeout'\r\n" in client.stream
            assert client.controls == [(CLOSE, b"\x03\xf0Authentication Timeout")]


USERS = """
authorization { users [ {user: one, password: two}, {user: web, password: x, allowed_connection_types: [WEBSOCKET]}
  {user: plain, password: x, allowed_connection_types: [STANDARD]} ] }
"""


def test_users_by_cookies_and_by_nothing(kind: int) -> None:
    lines = ("user_cookie: u", "pass_cookie: p", "no_auth_user: web")
    with serving(kind, *lines, more=USERS) as port:
        with Websocket(port, asked=request("Cookie: a=b; u=one; p=two")) as client:
            client.say(QUIET + b"PING\r\n")
            client.until(b"PONG\r\n")
        with Websocket(port, asked=request("Cookie: u=one; p=wrong")) as client:
            client.say(QUIET + b"PING\r\n")
            client.to_the_end()
            assert b"-ERR 'Authorization Violation'\r\n" in client.stream
        with Websocket(port) as client:
            client.say(QUIET + b"PING\r\n")
            client.until(b"PONG\r\n")
        with Websocket(port) as client:
            client.say(b'CONNECT {"verbose":false,"user":"plain","pass":"x"}\r\nPING\r\n')
            client.to_the_end()
            assert b"-ERR 'Authorization Violation'\r\n" in client.stream


def test_tokens_by_a_cookie(kind: int) -> None:
    with serving(kind, "token_cookie: t", "authorization { token: secret }") as port:
        for cookie, answer in (("t=secret", b"PONG\r\n"), ("t=no", b"-ERR 'Authorization Violation'\r\n")):
            with Websocket(port, asked=request(f"Cookie: {cookie}")) as client:
                client.say(QUIET + b"PING\r\n")
                client.until(answer)


# --- encrypted --------------------------------------------------------------------------------------------------------


def tls(certificates: Certificates, *more: str) -> str:
    server = certificates.server
    return f"tls {{ {', '.join([f'cert_file: {server.cert}', f'key_file: {server.key}', *more])} }}"


@pytest.mark.parametrize("asked", [request(), DEFLATE], ids=["plain", "compressed"])
def test_wss(kind: int, certificates: Certificates, asked: bytes) -> None:
    with (
        serving(kind, tls(certificates), "compression: true", tls=True) as port,
        Websocket(port, asked=asked, context=certificates.context()) as client,
    ):
        said = json.loads(inflated(client, 1).partition(b"\r\n")[0][5:])
        assert said["tls_required"] is True and said["tls_available"] is True and said["port"] == port
        body = b"y" * 300_000
        client.send(frame(BINARY, QUIET + b"SUB a 1\r\nPUB a 300000\r\n" + body + b"\r\n"))
        client.send(frame(PING, b"x"))
        wanted = b"MSG a 1 300000\r\n" + body + b"\r\n"
        assert inflated(client, len(wanted)) == wanted
        client.send(frame(CLOSE, b"\x03\xe8"))
        client.to_the_end()
        assert client.controls == [(PONG, b"x"), (CLOSE, b"\x03\xe8")]


def test_certificates_of_clients(kind: int, certificates: Certificates) -> None:
    wanted = tls(certificates, f"ca_file: {certificates.authority}", "verify: true")
    with serving(kind, wanted, tls=True) as port:
        with Websocket(port, context=certificates.context(certificates.client)) as client:
            client.until(b"INFO")
        with Websocket(port, context=certificates.context()) as client:
            assert client.closed and not client.head


# --- a real client ----------------------------------------------------------------------------------------------------


async def talks(url: str) -> None:
    client = await nats.connect(url)
    other = await nats.connect(url)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(message: nats.aio.msg.Msg) -> None:
        await message.respond(message.data[::-1])

    async def take(message: nats.aio.msg.Msg) -> None:
        await got.put(message.data)

    await other.subscribe("ask.*", cb=answer)
    await other.subscribe("many", cb=take)
    for _ in range(2):  # this client may send a flush's PING before the SUBs: the second finds these gone
        await other.flush()
    assert (await client.request("ask.it", b"abc", timeout=30)).data == b"cba"
    for number in range(500):
        await client.publish("many", b"%d" % number * 50)
    await client.flush()
    for number in range(500):
        assert await asyncio.wait_for(got.get(), 30) == b"%d" % number * 50
    big = bytes(1 << 20)
    await client.publish("many", big)
    assert await asyncio.wait_for(got.get(), 30) == big
    await client.close()
    await other.close()


@pytest.mark.parametrize(("acceptors", "compression"), [(0, "false"), (0, "true"), (1, "true"), (3, "false")])
def test_a_real_client(acceptors: int, compression: str) -> None:
    if acceptors == 0 and nats_server() is None:
        pytest.skip("no nats-server")
    with serving(acceptors, f"compression: {compression}") as port:
        asyncio.run(talks(f"ws://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (frame(BINARY, QUIET, mask=None), "Read Error"),
        (frame(BINARY, QUIET) + frame(CLOSE, b"\x03"), "Read Error"),
        (frame(BINARY, QUIET) + frame(CLOSE, b"\x03\xe8bye"), "Client Closed"),
        (frame(BINARY, QUIET + b"-ERR 'no'\r\n"), "Parse Error"),
    ],
)
def test_monitoring_says_why_it_ended(kind: int, said: bytes, reason: str) -> None:
    monitoring = free_port()
    with serving(kind, more=f"http: 127.0.0.1:{monitoring}\n") as port, Websocket(port) as wire:
        wire.send(said)
        while not wire.closed:
            wire.receive()
        url = f"http://127.0.0.1:{monitoring}/connz?state=closed"
        until_true(lambda: "websocket" in urllib.request.urlopen(url).read().decode())
        rows = json.load(urllib.request.urlopen(url))["connections"]
        assert [row["reason"] for row in rows if row["type"] == "websocket"] == [reason]
