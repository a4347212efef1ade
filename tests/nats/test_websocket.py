"""Clients on websockets: to the byte what a nats-server says to them, as seen and as a real one says it now."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from mq_shards.acceptor.protocols.nats.websocket_upgrade import MAX_HEAD_BYTES, Request

from tests.nats.conftest import KINDS
from tests.nats.record import WEBSOCKET_TRANSCRIPTS
from tests.nats.websocket_scenes import BLOCK, FRAMES, QUIET, REQUESTS, play_frames, play_request
from tests.nats.websocket_wire import BINARY, COMPRESSED, FINAL, Websocket, frame, request, serving

SEEN = json.loads(WEBSOCKET_TRANSCRIPTS.read_text())


class Websockets(NamedTuple):
    port: int
    is_real: bool


@pytest.fixture(params=KINDS[:3], scope="module")
def websockets(request: pytest.FixtureRequest) -> Iterator[Websockets]:
    with serving(request.param, *BLOCK) as port:
        yield Websockets(port, request.param == 0)


@pytest.mark.parametrize("name", REQUESTS, ids=lambda name: name.replace(" ", "-"))
def test_a_request_is_answered_as_a_nats_server_does(websockets: Websockets, name: str) -> None:
    assert play_request(websockets.port, REQUESTS[name]) == SEEN["requests"][name]


@pytest.mark.parametrize("name", FRAMES, ids=lambda name: name.replace(" ", "-"))
def test_frames_are_answered_as_a_nats_server_does(websockets: Websockets, name: str) -> None:
    heard = play_frames(websockets.port, FRAMES[name])
    # A nats-server that is told something wrong may be gone before it has said why.
    if not (websockets.is_real and heard == ["", [], True]):
        assert heard == SEEN["frames"][name]


def test_a_header_full_of_blanks_takes_no_longer_than_its_length() -> None:
    head = b"GET / HTTP/1.1\r\nHost: h\r\nX: a" + b" " * (MAX_HEAD_BYTES - 100) + b"b \t"
    began = time.process_time()
    assert Request(head).get("x").replace(" ", "") == "ab"
    assert time.process_time() - began < 0.3


def packed(text: bytes) -> bytes:
    """As RFC 7692 has it, without the end of the flush."""
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return (deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


GOOD = packed(QUIET + b"PING\r\n")
# Compressed messages, and whether that is the end.
MESSAGES = {
    "good": (GOOD, False),
    "one that has ended": (zlib.compress(QUIET + b"PING\r\n", wbits=-zlib.MAX_WBITS) + b"more", False),
    "none": (b"", True),
    "cut short": (GOOD[:-3], True),
    "half": (GOOD[: len(GOOD) // 2], True),
    "with the end of the flush": (GOOD + b"\x00\x00\xff\xff", True),
    "none that there is": (b"\xff\xff", True),
}


@pytest.mark.parametrize("name", MESSAGES, ids=lambda name: name.replace(" ", "-"))
def test_a_compressed_message_has_to_be_whole(websockets: Websockets, name: str) -> None:
    message, is_end = MESSAGES[name]
    with Websocket(websockets.port, asked=request("Sec-WebSocket-Extensions: permessage-deflate")) as one:
        one.send(frame(BINARY, message, first=FINAL | COMPRESSED) + frame(BINARY, b"PING\r\n"))
        if is_end:
            one.to_the_end()
        else:
            while one.stream.count(b"PONG") < 2:
                assert one.hear()
