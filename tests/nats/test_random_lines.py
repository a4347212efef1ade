"""Lines drawn at random, right and wrong, cut anywhere: what a client is told to the byte beside a real nats-server."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.nats.servers import nats_server, running
from tests.nats.wire import Wire

SCRIPTS: Final = 250
CUT_S: Final = 0.001  # so that what is cut may come in two pieces; nothing depends on whether it does
SUBJECTS: Final = (
    b"a", b"a.b", b"a.b.c", b"b", b"*", b"a.*", b">", b"a.>", b"foo*", b"a..b", b".a", b"a.", b"$SYS.x", b"_INBOX.x",
    b"$JS.API.x", b"_R_.x", b"_GR_.y", b"$NRG.x", b"a.>.b", b"\xc3\xa4", b'a"b', b"a\x01b",
)  # fmt: skip
REPLIES: Final = (b"a", b"b", b"_INBOX.x", b"r.*", b"_R_.x", b"$JS.ACK.x", b"a..b")
SIDS: Final = (b"1", b"2", b"3", b"4", b"abc", b"0", b"-1")
HEADERS: Final = (
    b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"xyz", b"",
    b"NATS/1.0\r\nA:b\r\nA: c\r\n", b"\r\n\r\n",
)  # fmt: skip
OTHERS: Final = (
    b"+OK\r\n", b"+ok\r\n", b"INFO {}\r\n", b"info\r\n", b"INFO x\r\n", b"INFO null\r\n", b"PONG zz\r\n",
    b"-ERR 'x'\r\n", b"\r\n", b"\n", b"MSG a 1 1\r\nx\r\n", b"FOO\r\n", b"PIN\r\n", b"SUBB a 1\r\n", b" PING\r\n", b"A",
    b"CONNECTX {}\r\n",
    b"+OKx\r\n", b"SUB\ta\t1\n", b"PUB a 1 \r\nx\r\n", b"SUB\r\n", b"SUB a\r\n", b"SUB a b c d\r\n",
)  # fmt: skip
BAD_CONNECTS: Final = (b"{", b"[]", b"null", b"1", b"", b"{}x", b" {}", b'{"verbose":false}{"a":1}')


class Draw(random.Random):
    def often(self, percent: float) -> bool:
        return self.random() * 100 < percent

    def subject(self) -> bytes:
        return self.choice(SUBJECTS if self.often(50) else SUBJECTS[:8])

    def blank(self) -> bytes:
        return self.choice((b" ", b" ", b" ", b"  ", b"\t", b" \t "))

    def ends(self, *, published: bool = False) -> bytes:
        return self.choice((*[b"\r\n"] * 8, b"\n", b" \r\n", *([] if published else [b"\r\r\n"])))

    def word(self, word: bytes) -> bytes:
        mixed = bytes(self.choice((c, c | 32)) if 65 <= c <= 90 else c for c in word)
        return self.choice((word, word, word, word.lower(), mixed))

    def number(self, n: int) -> bytes:
        return self.choice(
            (*[b"%d" % n] * 12, b"0%d" % n, b"+%d" % n, b"-1", b"x", b"%d" % (n + 1), b"9" * 21, b"1e3", b"")
        )

    def bytes_of(self, alphabet: bytes, sizes: Sequence[int]) -> bytes:
        return bytes(self.choice(alphabet) for _ in range(self.choice(sizes)))

    def connect(self) -> bytes:
        flags = {"verbose": 30, "pedantic": 60, "echo": 60, "headers": 60, "no_responders": 60}
        said: dict[str, object] = {flag: self.often(percent) for flag, percent in flags.items() if self.often(45)}
        if self.often(40):
            said["protocol"] = self.choice((0, 1, 1, 1, 2, -1))
        if self.often(10):
            said[self.choice(("name", "user", "pass", "auth_token", "jwt", "nkey", "sig", "lang", "version"))] = "z"
        if self.often(3):
            said[self.choice(("verbose", "protocol", "user"))] = self.choice(("s", 1, None, [], {}))
        text = self.choice(BAD_CONNECTS) if self.often(3) else json.dumps(said).encode()
        return self.word(b"CONNECT") + self.blank() + text + self.ends()

    def sub(self) -> bytes:
        queue = self.blank() + self.choice((b"q", b"r", b"q*", b"a.b")) if self.often(20) else b""
        return (
            self.word(b"SUB") + self.blank() + self.subject() + queue + self.blank() + self.choice(SIDS) + self.ends()
        )

    def unsub(self) -> bytes:
        most = self.blank() + self.number(self.randint(0, 4)) if self.often(60) else b""
        return self.word(b"UNSUB") + self.blank() + self.choice(SIDS) + most + self.ends()

    def pub(self) -> bytes:
        payload = self.bytes_of(b"abc\r\n \x00", (0, 1, 2, 5, 30))
        reply = self.blank() + self.choice(REPLIES) if self.often(30) else b""
        line = self.word(b"PUB") + self.blank() + self.subject() + reply + self.blank() + self.number(len(payload))
        behind = self.choice((*[b"\r\n"] * 40, b"\n", b"", b"\r", b"\rx"))
        return line + self.ends(published=True) + payload + behind

    def hpub(self) -> bytes:
        headers, payload = self.choice(HEADERS), self.bytes_of(b"abc\r\n", (0, 1, 7))
        reply = self.blank() + self.choice(REPLIES[:3]) if self.often(30) else b""
        sizes = [self.number(len(headers)), self.number(len(headers) + len(payload))]
        line = self.word(b"HPUB") + self.blank() + self.subject() + reply
        line += b"".join(self.blank() + size for size in sizes) + self.ends(published=True)
        return line + headers + payload + self.choice((*[b"\r\n"] * 40, b"\n"))

    def ping(self) -> bytes:
        return self.word(b"PING") + self.choice((*[b"\r\n"] * 8, b"\n", b"x\r\n", b" \r\n"))

    def other(self) -> bytes:
        return self.choice(OTHERS)

    def command(self) -> bytes:
        kinds = (self.sub, self.unsub, self.pub, self.hpub, self.ping, self.connect, self.other)
        return self.choices(kinds, (22, 10, 30, 16, 12, 3, 5))[0]()

    def script(self) -> list[bytes]:
        said = b"".join(
            [self.connect() if self.often(80) else b"", *(self.command() for _ in range(self.randint(1, 14)))]
        )
        cuts = sorted({self.randrange(len(said)) for _ in range(self.choice((0, 0, 1, 2, 4)))})
        return [said[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(said)], strict=True)]


def answers(port: int, pieces: Sequence[bytes]) -> bytes:
    wire = Wire(port)
    try:
        for piece in pieces:
            wire.send(piece)
            if len(pieces) > 1:
                time.sleep(CUT_S)
        with contextlib.suppress(OSError):
            wire.socket.shutdown(socket.SHUT_WR)
        while not wire.heard.closed:
            wire.receive()
        return wire.heard.data
    finally:
        wire.close()


PART: Final = re.compile(rb"(H?MSG [^\r\n]* (\d+))\r\n|[^\n]*\n|[^\n]+$")


def parts(heard: bytes) -> list[bytes]:
    """Line by line, messages whole; those to several subscriptions, which come in no order, sorted."""
    found, at = [], 0
    message: tuple[bytes, ...] = ()
    begin = 0
    while (match := PART.match(heard, at)) is not None and match.end() > at:
        at = match.end() + (int(match[2]) + 2 if match[2] else 0)
        words = match[1].split(b" ") if match[1] else []
        this = (words[1], *words[3:], heard[match.end() : at]) if words else ()
        if this != message:
            found[begin:] = sorted(found[begin:])
            message, begin = this, len(found)
        found.append(heard[match.start() : at])
        if not this:
            begin = len(found)
    found[begin:] = sorted(found[begin:])
    return found


def comparable(heard: bytes) -> list[bytes]:
    """INFO is each server's own. A nats-server looks again at a PUB that comes in pieces, and says again what is wrong
    with its subject."""
    heard = re.sub(rb"INFO \{[^\n]*\n", b"INFO\n", heard)
    return parts(re.sub(rb"(-ERR 'Invalid Publish Subject'\r\n)+", b"-ERR 'Invalid Publish Subject'\r\n", heard))


@pytest.mark.skipif(nats_server() is None, reason="no nats-server")
def test_lines_drawn_at_random_are_answered_as_a_nats_server_answers_them() -> None:
    draw = Draw(19)
    scripts = [draw.script() for _ in range(SCRIPTS)]
    with running(0) as real, running(1) as ours, ThreadPoolExecutor(2) as threads:
        wanted, heard = threads.map(
            lambda server: [comparable(answers(server.port, script)) for script in scripts], (real, ours)
        )
        for script, one, other in zip(scripts, wanted, heard, strict=True):
            assert (script, other) == (script, one)
