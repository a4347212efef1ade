"""POST /pub and /mpub in the acceptor, with a worker made by the test: requests of HTTP in, messages out, answers.

What is not plainly a publish has to be handed over as it is: an upcall without a word, and nothing taken. Whatever is
taken here has to be what the gateway's parser makes of it too.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mq_shards.acceptor.engine import protocol_number
from mq_shards.csrc._core import lib
from mq_shards.gateway.http_parse import BadRequestError, chunk_bytes, find_end, parse_head

from tests.acceptor.bench import FAILED, NO_SPACE, OPEN, PUBLISH, SECOND, Request
from tests.acceptor.nsq.bench import CHANGE, DURABLE, PUBLISH_MANY, Bench, Client

HTTP: Final = protocol_number("nsq-http")
HANDED_OVER: Final = b""
DATE: Final = b"Thu, 01 Jan 1970 00:00:00 GMT"  # by a clock that was never set


def post(target: bytes = b"/pub?topic=t", body: bytes = b"hello", *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST %s HTTP/%s" % (target, version), b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(body: bytes, size: int = 3, target: bytes = b"/pub?topic=t") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    head = b"POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % target
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def said(status: bytes, text: bytes, connection: bytes = b"") -> bytes:
    """A whole answer."""
    kind = b"text/plain" if text == b"OK" else b"application/json"
    body = text if text == b"OK" else b'{"message":"%s"}' % text
    head = [
        b"HTTP/1.1 " + status, b"X-Nsq-Content-Type: nsq; version=1.0", b"Content-Type: %s; charset=utf-8" % kind,
        b"Content-Length: %d" % len(body), b"Date: " + DATE, b"Server: mq-shards",
        *([b"Connection: " + connection] if connection else []),
    ]  # fmt: skip
    return b"\r\n".join(head) + b"\r\n\r\n" + body


TAKEN: Final = said(b"200 OK", b"OK")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.acceptor.set("nsq-http.max-msg-size", 100)
    bench.acceptor.set("nsq-http.max-body-size", 1000)
    bench.acceptor.set("nsq-http.max-req-timeout-ns", 600 * 1_000_000)
    yield bench
    bench.close()


def client_of(bench: Bench) -> Client:
    client = Client(bench, protocol=HTTP)
    bench.clients.append(client)
    return client


@pytest.fixture
def client(bench: Bench) -> Client:
    return client_of(bench)


def requests(bench: Bench) -> list[Request]:
    return [request for request in bench.take() if request.kind != OPEN]


def talk(bench: Bench, client: Client, data: bytes) -> bytes:
    """What is said, when the worker does all it is asked."""
    client.send(data)
    heard = b""
    while True:
        asked = requests(bench)
        for request in asked:
            bench.answer(0, request)
        bench.turn()
        if not asked:
            return heard + client.raw()
        heard += client.raw()


class TestPublishes:
    def test_a_message(self, bench: Bench, client: Client) -> None:
        client.send(post())
        (request,) = requests(bench)
        assert (request.kind, request.body, request.pri) == (PUBLISH, b"hello", 1024)
        assert request.flags == DURABLE | lib.MSG_JOINED
        assert request.ttr_ns == 60 * SECOND
        assert client.raw() == b""
        bench.answer(0, request)
        assert client.raw() == TAKEN
        assert talk(bench, client, post()) == TAKEN

    def test_requests_that_come_together_are_answered_in_their_order(self, bench: Bench, client: Client) -> None:
        client.send(post(body=b"1") + post(body=b"") + post(body=b"2"))
        first, second = requests(bench)
        assert (first.body, second.body) == (b"1", b"2")
        bench.answer(0, second)
        assert client.raw() == b""
        bench.answer(0, first)
        assert client.raw() == TAKEN + said(b"400 Bad Request", b"MSG_EMPTY") + TAKEN

    def test_many_requests_in_one_packet(self, bench: Bench, client: Client) -> None:
        assert talk(bench, client, post() * 700) == TAKEN * 700

    def test_bytes_one_by_one(self, bench: Bench, client: Client) -> None:
        data = post(b"/pub?topic=t&defer=5")
        for at in range(len(data)):
            client.send(data[at : at + 1])
        (request,) = requests(bench)
        assert (request.body, request.delay_ns) == (b"hello", 5_000_000)

    @pytest.mark.parametrize("size", [1, 2, 7, 50])
    @pytest.mark.parametrize("step", [1, 5, 1000])
    def test_a_body_in_chunks(self, bench: Bench, client: Client, size: int, step: int) -> None:
        body = bytes(range(50))
        data = chunked(body, size)
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        (request,) = requests(bench)
        assert request.body == body

    def test_chunks_may_have_extensions_and_trailers(self, bench: Bench, client: Client) -> None:
        head = b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n"
        body = b"5 ;name=value\r\nhello\r\n0;last\r\nTrailer: x\r\n\r\n"
        assert talk(bench, client, head + body + post()) == TAKEN * 2

    @pytest.mark.parametrize(
        "body",
        [
            b"x\r\n",
            b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"-1\r\n",
            b"\r\n",
        ],
    )
    def test_chunks_that_are_none_end_the_connection(self, bench: Bench, client: Client, body: bytes) -> None:
        client.send(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body + post())
        assert client.raw() == said(b"500 Internal Server Error", b"INTERNAL_ERROR", b"close")
        assert not requests(bench)
        bench.advance(2 * SECOND)
        assert client.is_closed

    def test_a_client_that_asks_whether_it_may_go_on(self, bench: Bench, client: Client) -> None:
        client.send(post(b"/pub?topic=t", b"hello", b"Expect: 100-Continue")[:-5])
        assert client.raw() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert talk(bench, client, b"hello") == TAKEN
        client.send(post(b"/pub?topic=t", b"x" * 101, b"Expect: 100-continue")[:-101])
        assert client.raw() == said(b"413 Request Entity Too Large", b"MSG_TOO_BIG", b"close")

    @pytest.mark.parametrize(
        ("version", "header", "says"),
        [
            (b"1.1", b"Connection: close", b"close"), (b"1.1", b"Connection: Keep-Alive", b""),
            (b"1.0", b"X: y", b"close"), (b"1.0", b"connection: keep-alive", b"keep-alive"),
        ],
    )  # fmt: skip
    def test_what_becomes_of_the_connection(
        self, bench: Bench, client: Client, version: bytes, header: bytes, says: bytes
    ) -> None:
        expected = said(b"200 OK", b"OK", says).replace(b"HTTP/1.1", b"HTTP/" + version)
        assert talk(bench, client, post(b"/pub?topic=t", b"x", header, version=version)) == expected
        assert client.is_closed is (says == b"close")

    @pytest.mark.parametrize(
        ("target", "body", "status", "text"),
        [
            (b"/pub?topic=t", b"x" * 101, b"413 Request Entity Too Large", b"MSG_TOO_BIG"),
            (b"/pub", b"", b"400 Bad Request", b"MSG_EMPTY"),
            (b"/pub", b"x", b"400 Bad Request", b"MISSING_ARG_TOPIC"),
            (b"/pub?topic", b"x", b"400 Bad Request", b"INVALID_TOPIC"),
            (b"/pub?topic=%74%zz", b"x", b"400 Bad Request", b"INVALID_REQUEST"),
            (b"/pub?topic=t;a", b"x", b"400 Bad Request", b"INVALID_REQUEST"),
            (b"/pub?topic=t" + b"&" * 1000, b"x", b"400 Bad Request", b"INVALID_REQUEST"),
            (b"/pub?topic=" + b"t" * 65, b"x", b"400 Bad Request", b"INVALID_TOPIC"),
            (b"/pub?topic=t&defer=601", b"x", b"400 Bad Request", b"INVALID_DEFER"),
            (b"/pub?topic=t&defer=", b"x", b"400 Bad Request", b"INVALID_DEFER"),
            (b"/pub?topic=t&defer=-1&defer=1", b"x", b"400 Bad Request", b"INVALID_DEFER"),
            (b"/mpub?topic=t", b"x" * 1001, b"413 Request Entity Too Large", b"BODY_TOO_BIG"),
            (b"/mpub?topic=t", b"x" * 101, b"413 Request Entity Too Large", b"MSG_TOO_BIG"),
            (b"/mpub?topic=t&binary", b"abc", b"413 Request Entity Too Large", b"BAD_BODY"),
            (b"/mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\2x", b"413 Request Entity Too Large", b"BAD_MESSAGE"),
            (b"/mpub?topic=t%2f", b"x", b"400 Bad Request", b"INVALID_TOPIC"),
        ],
    )
    def test_refusals_leave_the_connection(
        self, bench: Bench, client: Client, target: bytes, body: bytes, status: bytes, text: bytes
    ) -> None:
        assert talk(bench, client, post(target, body) + post()) == said(status, text) + TAKEN

    def test_a_body_that_is_much_too_large_ends_it(self, bench: Bench, client: Client) -> None:
        client.send(post(b"/pub?topic=t", b"x" * (300 << 10)))
        assert client.raw() == said(b"413 Request Entity Too Large", b"MSG_TOO_BIG", b"close")
        bench.advance(2 * SECOND)
        assert client.is_closed
        assert not requests(bench)

    def test_messages_by_line_and_by_size(self, bench: Bench, client: Client) -> None:
        sized = b"\0\0\0\3one\0\0\0\5two\r\0"
        client.send(post(b"/mpub?topic=t", b"\none\n\ntwo\r\0\n\n"))
        client.send(post(b"/mpub?topic=t&binary=true", b"\0\0\0\2" + sized + b"what follows"))
        client.send(chunked(b"one\ntwo\r\0", 2, b"/mpub?topic=t&binary=0"))
        for request in requests(bench):
            assert (request.kind, request.pri, request.body) == (PUBLISH_MANY, 2, sized)
            bench.answer(0, request)
        assert client.raw() == TAKEN * 3

    def test_no_message_makes_a_topic(self, bench: Bench, client: Client) -> None:
        client.send(post(b"/mpub?topic=t", b"\n\n"))
        (request,) = requests(bench)
        assert (request.kind, request.pri, request.body) == (CHANGE, lib.CHANGE_MAKE, b"t")
        bench.answer(0, request, FAILED)
        assert client.raw() == said(b"500 Internal Server Error", b"INTERNAL_ERROR")

    @pytest.mark.parametrize("request_", [post(), post(b"/mpub?topic=t", b""), post(b"/mpub?topic=t", b"1\n2")])
    def test_a_topic_too_many_is_called_that(self, bench: Bench, client: Client, request_: bytes) -> None:
        client.send(request_)
        bench.answer(0, requests(bench)[0], lib.STATUS_TOO_MANY)
        bench.turn()
        assert client.raw() == said(b"503 Service Unavailable", b"TOO_MANY_TOPICS")

    @pytest.mark.parametrize("status", [NO_SPACE, FAILED])
    def test_what_a_worker_refuses(self, bench: Bench, client: Client, status: int) -> None:
        client.send(post())
        bench.answer(0, requests(bench)[0], status)
        assert client.raw() == said(b"503 Service Unavailable", b"EXITING")

    def test_while_draining(self, bench: Bench, client: Client) -> None:
        bench.drain()
        assert talk(bench, client, post() * 2) == said(b"503 Service Unavailable", b"EXITING") * 2

    def test_a_worker_that_is_away_is_waited_for(self, bench: Bench, client: Client) -> None:
        bench.acceptor.peer_gone(0)
        client.send(post())
        bench.advance(200 * SECOND)
        assert client.raw() == b""
        bench.worker[0].attach()
        bench.turn()
        assert talk(bench, client, b"") == TAKEN

    def test_a_client_that_ends_its_side_is_answered(self, bench: Bench, client: Client) -> None:
        client.send(post())
        client.socket.shutdown(1)
        bench.turn()
        bench.answer(0, requests(bench)[0])
        assert client.raw() == TAKEN
        assert client.closed

    def test_half_a_body_is_none(self, bench: Bench, client: Client) -> None:
        client.send(post()[:-1])
        client.socket.shutdown(1)
        bench.turn()
        assert client.raw() == said(b"500 Internal Server Error", b"INTERNAL_ERROR", b"close")
        assert client.closed
        assert not requests(bench)


class TestTimeouts:
    def test_a_silent_client_is_closed(self, bench: Bench, client: Client) -> None:
        client.send(b"POST /pub?to")
        for _ in range(3):
            bench.advance(24 * SECOND)
            assert not client.is_closed
        bench.advance(4 * SECOND)
        assert client.is_closed
        assert client.raw() == b""

    def test_one_that_speaks_now_and_then_is_not(self, bench: Bench, client: Client) -> None:
        for _ in range(5):
            bench.advance(70 * SECOND)
            assert talk(bench, client, post()) == TAKEN

    def test_a_body_that_does_not_go_on(self, bench: Bench, client: Client) -> None:
        client.send(post()[:-2])
        bench.advance(9 * SECOND)
        assert client.raw() == b""
        bench.advance(2 * SECOND)
        assert client.raw() == said(b"408 Request Timeout", b"TIMEOUT", b"close")
        bench.advance(2 * SECOND)
        assert client.is_closed

    def test_a_body_that_goes_on_for_too_long(self, bench: Bench, client: Client) -> None:
        data = post(body=b"x" * 50)
        client.send(data[:-50])
        for _ in range(11):
            bench.advance(5 * SECOND)
            client.send(b"x")
        assert client.raw() == b""
        bench.advance(6 * SECOND)
        assert client.raw() == said(b"408 Request Timeout", b"TIMEOUT", b"close")


class TestHandingOver:
    @pytest.mark.parametrize(
        "data",
        [
            b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n", b"P\0", b"PUT /pub", b"\r\n",
            b"POST /pub/x HTTP/1.1\r\nHost: h\r\n\r\n",
            b"POST /pub?topic=t HTTP/1.1\r\n\r\n", post(b"/pub?topic=t", b"x", b"host: x"),
            post(b"/pub?topic=t x"), post(b"/pub?topic=t\x7f"), post(b"/pubs?topic=t"), b"POST http://x/pub?topic=t",
            post(version=b"2.0"), post(version=b"1.2"), post(version=b"1.10"),
            post(b"/pub?topic=t", b"x", b"Origin: http://elsewhere"),
            # What others may read otherwise: requests could be smuggled past them.
            post(b"/pub?topic=t", b"x", b"Content-Length: 1"), post(b"/pub?topic=t", b"x", b"Content-Length: 2"),
            post(b"/pub?topic=t", b"x", b"Transfer-Encoding: chunked"),
            b"POST /pub HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
            b"POST /pub HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"POST /pub HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
            b"POST /pub?topic=t HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /pub HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999999999999\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nX: y\r\n folded\r\nContent-Length: 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nX: a\rContent-Length: 5\r\nContent-Length: 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nX: \0\r\nContent-Length: 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\n: y\r\nContent-Length: 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nnothing\r\nContent-Length: 1\r\n\r\nx",
            b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nX: " + b"y" * (16 << 10),
            post(b"/pub?topic=t", b"x", b"Expect: 200-ok"), post(b"/pub?topic=t", b"x", b"Connection: upgrade"),
        ],
    )  # fmt: skip
    def test_what_is_not_plainly_a_publish(self, bench: Bench, client: Client, data: bytes) -> None:
        client.send(data)
        assert bench.commands() == [(client.number, HANDED_OVER)]
        assert client.raw() == b""
        assert not requests(bench)
        found = bench.acceptor.socket_of(client.number)
        assert found is not None and found[1] == data[: len(found[1])] and len(found[1]) >= 1

    def test_what_came_before_is_answered_first(self, bench: Bench, client: Client) -> None:
        client.send(post() + post(body=b"") + b"GET /stats HTTP/1.1\r\nHost: h\r\n\r\n" + post())
        assert bench.commands() == []
        bench.answer(0, requests(bench)[0])
        bench.turn()
        assert client.raw() == TAKEN + said(b"400 Bad Request", b"MSG_EMPTY")
        assert bench.commands() == [(client.number, HANDED_OVER)]
        found = bench.acceptor.socket_of(client.number)
        assert found is not None and found[1] == b"GET /stats HTTP/1.1\r\nHost: h\r\n\r\n" + post()
        bench.acceptor.forget(client.number)
        bench.turn()
        assert bench.acceptor.socket_of(client.number) is None

    def test_it_goes_on_with_what_came_elsewhere(self, bench: Bench) -> None:
        client = client_of(bench)
        client.send(b"GET ")
        found = bench.acceptor.socket_of(client.number)
        assert found is not None
        kept = os.dup(found[0])
        bench.acceptor.forget(client.number)
        bench.turn()
        client.socket.send(b"hello")  # nobody listens: it waits in the socket
        bench.turn()
        bench.take_upcalls()
        bench.acceptor.adopt(kept, HTTP, post()[:-5])
        bench.turn()
        assert talk(bench, client, b"") == TAKEN

    def test_where_plain_http_is_forbidden_all_of_it_is(self, bench: Bench, client: Client) -> None:
        bench.acceptor.set("nsq-http.serves", 0)
        client.send(post())
        assert bench.commands() == [(client.number, HANDED_OVER)]

    def test_of_a_topic_that_is_new_python_is_asked_first(self, bench: Bench, client: Client) -> None:
        bench.acceptor.configure(HTTP, "prepares", 1)
        client.send(post())
        assert bench.commands() == [(client.number, b"t")]
        assert not requests(bench)
        bench.acceptor.call(client.number, "admit")
        bench.acceptor.resume(client.number)
        bench.turn()
        assert talk(bench, client, post()) == TAKEN * 2
        assert bench.commands() == []

    def test_what_had_to_wait_is_looked_at_again(self, bench: Bench, client: Client) -> None:
        bench.acceptor.configure(HTTP, "prepares", 1)
        client.send(chunked(b"hello") + post())
        assert bench.commands() == [(client.number, b"t")]
        bench.acceptor.call(client.number, "admit")
        bench.acceptor.resume(client.number)
        bench.turn()
        assert talk(bench, client, b"") == TAKEN * 2


# --- against the gateway's parser -------------------------------------------------------------------------------------

WORDS: Final = (
    b"POST ", b"GET ", b"/pub", b"/mpub", b"?topic=t", b"&defer=5", b"&binary=1", b" ", b"HTTP/1.1", b"HTTP/1.0",
    b"\r\n", b"\n", b"\r", b"Content-Length", b":", b" 5", b"5", b"3", b"Transfer-Encoding", b": chunked", b"chunked",
    b"hello", b"3\r\nabc\r\n", b"0\r\n\r\n", b"Connection: close", b"Expect: 100-continue", b"X: y", b"\t", b"%74",
    b"%", b";", b"\0", b"\x7f", b"\xff", b"Host: h", b",", b"-", b"+1",
)  # fmt: skip
PLAIN: Final = (post(), post(b"/mpub?topic=t"), chunked(b"hello", 2), post(b"/pub?topic=%74", b"abc", b"X: y"))


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A publish with a few bytes taken out, doubled, or words put in between."""
    data = draw(st.sampled_from(PLAIN))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 12)))
        middle = draw(st.sampled_from((b"", data[at:until] * 2, *WORDS)))
        data = data[:at] + middle + data[until:]
    return data


def gateway_reads(data: bytes) -> tuple[str, str, bytes] | None:
    """Method, target and body of the first request, as the gateway has them; None when it refuses it."""
    end = find_end(bytearray(data), 0)
    if not end:
        return None
    try:
        head = parse_head(data[:end])
    except BadRequestError:
        return None
    rest = data[end:]
    if head.body_bytes is not None:
        return head.method, head.target, rest[: head.body_bytes] if len(rest) >= head.body_bytes else b"?"
    body = b""
    while True:
        line, _, rest = rest.partition(b"\n")
        try:
            size = chunk_bytes(line)
        except ValueError:
            return None
        if size == 0:
            return head.method, head.target, body
        body, rest = body + rest[:size], rest[size + 2 :]


@pytest.fixture(scope="module")
def shared() -> Iterator[Callable[[bytes], list[Request]]]:
    """What is published of a connection's bytes, and nothing else."""
    bench = Bench()

    def published(data: bytes) -> list[Request]:
        client = client_of(bench)
        client.send(data)
        found = requests(bench)
        for request in found:
            bench.answer(0, request)
        client.socket.close()
        bench.turn()
        bench.take_upcalls()
        bench.clients.remove(client)
        return [request for request in found if request.kind in (PUBLISH, PUBLISH_MANY)]

    yield published
    bench.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt())
@example(post())
def test_what_is_published_is_what_the_gateway_reads(shared: Callable[[bytes], list[Request]], data: bytes) -> None:
    found = shared(data)
    if not found:
        return
    read = gateway_reads(data)
    assert read is not None, "it is no request to the gateway"
    method, target, body = read
    path = target.partition("?")[0]
    assert method == "POST"
    assert path == ("/pub" if found[0].kind == PUBLISH else "/mpub")
    if found[0].kind == PUBLISH:
        assert found[0].body == body
    elif "binary" not in target:
        assert found[0].body == b"".join(struct.pack(">I", len(line)) + line for line in body.split(b"\n") if line)


def test_all_that_is_plain_is_published(shared: Callable[[bytes], list[Request]]) -> None:
    assert [len(shared(data)) for data in PLAIN] == [1] * len(PLAIN)
