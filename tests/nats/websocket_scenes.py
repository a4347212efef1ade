"""What clients of websockets send, and a nats-server 2.15 answers to the byte: requests, and frames behind a good
one."""

from __future__ import annotations

import re
import struct
from typing import Final

from tests.nats.websocket_wire import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUES,
    FINAL,
    PING,
    PONG,
    TEXT,
    Websocket,
    frame,
    request,
)

# Of the block websocket that they were recorded with.
BLOCK: Final = (
    "compression: true", 'allowed_origins: ["http://one.example:8080", "https://two.example"]',
    'headers { X-Served-By: "here" }',
)  # fmt: skip

REQUESTS: Final = {
    "a good one": request(),
    "words in other cases": request("Upgrade: WebSocket", "Connection: keep-alive, upgrade", without="Upgrade"),
    "a list of words": request("Connection: keep-alive, Upgrade", without="Connection"),
    "another path": request(path="/chat?x=1"),
    "a POST": request(method="POST"),
    "a HEAD": request(method="HEAD"),
    "HTTP/1.0": request(version="1.0"),
    "no host": request(without="Host"),
    "two hosts": request("Host: other"),
    "no host, HTTP/1.0": request(without="Host", version="1.0"),
    "an empty host": request("Host:", without="Host"),
    "a host that is none": request("Host: a b", without="Host"),
    "a host in the URL": request(path="http://one.example/", without="Host"),
    "a frame behind it": request() + frame(BINARY, b"PING\r\n"),
    "one byte behind it": request() + b"\x82",
    "a body": request("Content-Length: 2") + b"hi",
    "HTTP/2.0": request(version="2.0"),
    "HTTP/1.2": request(version="1.2"),
    "a path that is none": request(path="x"),
    "a path with a blank": request(path="/a b"),
    "a path with an escape": request(path="/%6cEAFnode/leafnode%2f"),
    "a path with a wrong escape": request(path="/%zz"),
    "no upgrade": request(without="Upgrade"),
    "another upgrade": request("Upgrade: h2c", without="Upgrade"),
    "no connection": request(without="Connection"),
    "connection closes": request("Connection: close", without="Connection"),
    "no key": request(without="Sec-WebSocket-Key"),
    "a key that is none": request("Sec-WebSocket-Key: abc", without="Sec-WebSocket-Key"),
    "a key that is too short": request("Sec-WebSocket-Key: AAAA", without="Sec-WebSocket-Key"),
    "no version": request(without="Sec-WebSocket-Version"),
    "version 8": request("Sec-WebSocket-Version: 8", without="Sec-WebSocket-Version"),
    "for MQTT": request(path="/mqtt"),
    "for a leaf node": request(path="/leafnode"),
    "no masks": request("Nats-No-Masking: true"),
    "no masks, not quite": request("Nats-No-Masking: TRUE"),
    "compression": request("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"),
    "compression among others": request("Sec-WebSocket-Extensions: x-one, Permessage-Deflate"),
    "another extension": request("Sec-WebSocket-Extensions: x-one"),
    "a protocol": request("Sec-WebSocket-Protocol: nats"),
    "an allowed origin": request("Origin: http://one.example:8080"),
    "an allowed origin with its own port": request("Origin: https://two.example"),
    "an allowed origin in capitals": request("Origin: https://TWO.example:443"),
    "an origin of another scheme": request("Origin: http://two.example"),
    "an origin of another port": request("Origin: http://one.example"),
    "an origin that is none": request("Origin: null"),
    "an origin by the old name": request("Sec-WebSocket-Origin: http://other.example"),
    "empty lines before it": b"\r\n\r\n" + request(),
    "no HTTP": b"PING\r\n\r\n",
    "a header without a colon": request("Nonsense"),
    "a header with a blank in its name": request("Bad Name: x"),
    "a control in a header": request("X-One: a\x01b"),
}

QUIET: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
SUB: Final = QUIET + b"SUB a 1\r\n"


def says(line: bytes, **more: object) -> bytes:
    return frame(BINARY, line, **more)  # type: ignore[arg-type]


def closes(status: int, why: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", status) + why)


FRAMES: Final = {
    "PING and PONG of NATS": says(QUIET + b"PING\r\n") + closes(1000),
    "a text": frame(TEXT, QUIET + b"PING\r\n") + closes(1000),
    "a message in pieces": frame(BINARY, QUIET + b"PI", first=0) + frame(CONTINUES, b"N", first=0)
        + frame(CONTINUES, b"G\r\n") + closes(1000),
    "an empty piece": frame(BINARY, QUIET, first=0) + frame(CONTINUES) + says(b"PING\r\n") + closes(1000),
    "lines across messages": says(QUIET + b"PI") + says(b"NG\r") + says(b"\n") + closes(1000),
    "a ping": frame(PING, b"hello") + closes(1000),
    "an empty ping": frame(PING) + closes(1000),
    "a ping between pieces": frame(BINARY, QUIET + b"PI", first=0) + frame(PING, b"x") + frame(CONTINUES, b"NG\r\n")
        + closes(1000),
    "a pong": frame(PONG, b"x") + says(QUIET + b"PING\r\n") + closes(1000),
    "a large ping": frame(PING, b"x" * 126),
    "a ping in pieces": frame(PING, b"x", first=0),
    "a compressed ping": frame(PING, b"x", first=FINAL | COMPRESSED),
    "no mask": frame(BINARY, QUIET + b"PING\r\n", mask=None),
    "a reserved bit": frame(BINARY, b"x", first=FINAL | 0x20),
    "another reserved bit": frame(BINARY, b"x", first=FINAL | 0x10),
    "compressed without having asked": frame(BINARY, b"x", first=FINAL | COMPRESSED),
    "opcode 3": frame(3, b"x"),
    "opcode 11": frame(11, b"x"),
    "a piece of nothing": frame(CONTINUES, b"x"),
    "a message within a message": frame(BINARY, QUIET, first=0) + frame(BINARY, b"PING\r\n"),
    "a length that is too large": bytes([FINAL | BINARY, 0xFF]) + b"\xff" * 8 + b"\0" * 4,
    "a length written long": bytes([FINAL | BINARY, 0xFE, 0, len(QUIET)]) + b"\0" * 4 + QUIET + says(b"PING\r\n")
        + closes(1000),
    "close": frame(CLOSE),
    "close with a status": closes(1000),
    "close and why": closes(1001, b"I go"),
    "close with one byte": frame(CLOSE, b"x"),
    "close with a status that is none": closes(1005),
    "close with a status that is reserved": closes(2999),
    "close with a status of an application's": closes(4999, b"mine"),
    "close with a status that is too large": closes(5000),
    "close with what is no UTF-8": closes(1000, b"\xff\xfe"),
    "close with half a character": closes(1000, b"x\xc3"),
    "close with a surrogate": closes(1000, b"\xed\xa0\x80"),
    "close with all letters": closes(1000, "aé€😀".encode()),
    "something behind close": closes(1000) + says(QUIET + b"PING\r\n"),
    "a command before close": says(SUB + b"PUB a 2\r\nhi\r\n") + closes(1000),
    "half a command before close": says(SUB + b"PUB a 2\r\nh") + closes(1000),
    "an unknown word": says(QUIET + b"FOO\r\n"),
    "an argument that is none": says(QUIET + b"SUB a b c d\r\n"),
    "too long a line": says(QUIET + b"SUB " + b"a" * 5000 + b" 1\r\n"),
    "too large a payload": says(QUIET + b"PUB a 9999999\r\n"),
    "an unknown protocol": says(b'CONNECT {"verbose":false,"protocol":2}\r\n'),
    "no responders without headers": says(b'CONNECT {"verbose":false,"no_responders":true}\r\n'),
    "an account": says(b'CONNECT {"verbose":false,"account":"x"}\r\n'),
    "bad JSON": says(b"CONNECT {\r\n"),
    "close behind an unknown word": says(QUIET + b"FOO\r\n") + closes(1000),
    "close behind an argument that is none": says(QUIET + b"SUB a b c d\r\n") + closes(1000, b"bye"),
    "close behind too long a line": says(QUIET + b"SUB " + b"a" * 5000 + b" 1\r\n") + closes(1000),
    "close behind too large a payload": says(QUIET + b"PUB a 9999999\r\n") + closes(1000),
    "close behind an unknown protocol": says(b'CONNECT {"verbose":false,"protocol":2}\r\n') + closes(1000, b"bye"),
    "close behind bad JSON": says(b"CONNECT {\r\n") + closes(1000),
    "a frame that is wrong behind an account": says(b'CONNECT {"account":"x"}\r\n') + frame(3, b"x"),
}  # fmt: skip


def play_request(port: int, asked: bytes) -> list[str]:
    """What is answered, without what time says; and to a good request behind it, where that may be."""
    with Websocket(port, asked=asked) as one:
        heard = [_timeless(one.head)]
        if one.closed or one.head.startswith(b"HTTP/1.1 101"):
            return [*heard, "closed" if one.closed else "open"]
        size = re.search(rb"Content-Length: (\d+)", one.head)
        count = int(size[1]) if size and not asked.startswith(b"HEAD") else 0
        while not one.closed and (not size or len(one.rest) < count):
            one.receive()
        heard.append(one.rest.decode())
        one.rest = b""
        one.send(request())
        while not one.closed and b"\r\n\r\n" not in one.rest:
            one.receive()
        return [*heard, "goes on" if one.rest.startswith(b"HTTP/1.1 101") else "ends"]


def _timeless(head: bytes) -> str:
    return re.sub(r"Date: [^\r]*", "Date:", head.decode())


def play_frames(port: int, frames: bytes) -> list[object]:
    """What is said behind INFO, frames of control, and whether it is over."""
    with Websocket(port) as one:
        one.until(b"\r\n")
        info = one.stream.index(b"\r\n") + 2
        one.send(frames)
        one.to_the_end()
        said = re.sub(rb"INFO [^\r]*", b"INFO", one.stream[info:])
        return [said.decode(), [[kind, payload.decode("latin-1")] for kind, payload in one.controls], one.closed]
