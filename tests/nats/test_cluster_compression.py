"""Routes that are compressed, as nats-server does it: negotiated by INFO, S2 both ways, by the time to an answer."""

from __future__ import annotations

import contextlib
import json
import random
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.acceptor.filters.chunks import BLOCK_BYTES, masked_checksum
from mq_shards.acceptor.filters.snappy import Snappy

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, meshed, mixtures, settled, started
from tests.nats.route_wire import CONNECT, ID, INFO, NUMBERS, RouteWire, line
from tests.nats.s2 import BEST, BETTER, FAST, IDENTIFIER_CHUNK, IDENTIFIERS, S2, compress, uncompress
from tests.nsq.certificates import Certificates, make
from tests.servers import free_port, wait_until

CONF = """
host: 127.0.0.1
port: $PORT
http: "127.0.0.1:%d"
cluster {
    name: xyz
    listen: "127.0.0.1:$ROUTE_PORT"
    $PINGS
    routes: [%s]
    %s
}
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


class Compressing(Member):
    def __init__(self, kind: str, directory: Path, routes: Sequence[str], block: str, pings: str) -> None:
        self.http = free_port()
        quoted = ", ".join(f'"{url}"' for url in routes)
        # The old one knows no interval of routes alone, and no compression.
        text = CONF % (self.http, quoted, block if kind != OLD_REAL else "")
        text = text.replace("$PINGS", f"ping_interval: {pings}" if kind != OLD_REAL else "")
        super().__init__(kind, directory, conf=text)

    def modes(self) -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/routez", timeout=60) as answer:
            return {route.get("compression", "") for route in json.load(answer)["routes"]}


@contextlib.contextmanager
def compressing(kinds: Sequence[str], blocks: Sequence[str], pings: str = "200ms") -> Iterator[list[Compressing]]:
    def make(kind: str, block: str, directory: Path, before: list[Compressing]) -> Compressing:
        return Compressing(kind, directory, [member.route_url for member in before[:1]], block, pings)

    with started([partial(make, *one) for one in zip(kinds, blocks, strict=True)]) as members:
        meshed(members)
        yield members


def all_hear_all(members: Sequence[Member]) -> None:
    """What can be compressed, what cannot, and what is of many chunks."""
    chance = random.Random(1)
    payloads = [b"x" * 300_000, chance.randbytes(200_000), b"a" * 3 + chance.randbytes(50) * 5000, b""]
    payloads += [(b"%d " % n) * 40 for n in range(100)]
    listeners = [member.client(b"SUB big 1\r\n") for member in members]
    meshed(members)
    for member in members:
        talker = member.client()
        talker.socket.settimeout(30)
        for payload in payloads:
            talker.send(b"PUB big %d\r\n%s\r\n" % (len(payload), payload))
        talker.barrier()
        talker.close()
    settled(members, listeners, len(members) * len(members) * len(payloads))
    for wire in listeners:
        assert sorted(bodies(wire)) == sorted(payloads * len(members))
        wire.close()


CASES = [
    ((OURS, NEW_REAL), ("compression: s2_fast", "compression: s2_fast"), {"s2_fast"}),
    ((NEW_REAL, OURS), ("compression: s2_better", "compression: s2_best"), {"s2_best", "s2_better"}),
    ((NEW_REAL, OURS), ("compression: accept", "compression: s2_fast"), {"s2_fast"}),
    ((NEW_REAL, OURS), ("compression: s2_better", ""), {"s2_better"}),
    ((NEW_REAL, OURS), ("", ""), {"off"}),
    ((NEW_REAL, OURS), ("compression: s2_fast", "compression: off"), {"off"}),
    ((OURS, OLD_REAL), ("compression: s2_fast", ""), {"not supported"}),
    ((OURS, NEW_REAL, OURS_3), ("compression: s2_fast, accounts: []",) * 3, {"s2_fast"}),
]


@pytest.mark.parametrize(
    ("kinds", "blocks", "modes"),
    [
        pytest.param(*case, marks=mixture.marks, id=f"{mixture.id}-{number}")
        for number, (case, mixture) in enumerate(zip(CASES, mixtures(*(case[0] for case in CASES)), strict=True))
    ],
)
def test_servers_come_to_the_mode_that_both_can(
    kinds: tuple[str, ...], blocks: tuple[str, ...], modes: set[str]
) -> None:
    with compressing(kinds, blocks) as members:
        all_hear_all(members)
        shown = {mode for member in members if member.kind != OLD_REAL for mode in member.modes()}
        assert shown == modes, [member.said() for member in members]


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, NEW_REAL)))
def test_what_is_encrypted_may_be_compressed_too(kinds: tuple[str, ...], certificates: Certificates) -> None:
    pair = certificates.server
    tls = f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{certificates.authority}" }}'
    with compressing(kinds, (f"{tls}, compression: s2_fast",) * 2) as members:
        all_hear_all(members)
        assert {mode for member in members for mode in member.modes()} == {"s2_fast"}


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, OURS)))
def test_the_time_to_an_answer_says_how_much_it_is_compressed(kinds: tuple[str, ...]) -> None:
    # Here an answer comes at once; with thresholds that low it does not.
    high = "compression: {mode: s2_auto, rtt_thresholds: [1h, 2h, 3h]}"
    low = "compression: {mode: s2_auto, rtt_thresholds: [0s, 0s, 1ns]}"
    with compressing(kinds, (low, high)) as members:
        wait_until(lambda: members[1].modes() == {"s2_uncompressed"}, "it is not compressed")
        wait_until(lambda: members[0].modes() == {"s2_best"}, "it is compressed")
        all_hear_all(members)


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_a_mode_that_nobody_knows_is_refused_with_a_word(kinds: tuple[str, ...]) -> None:
    with compressing(kinds, ("compression: s2_fast",)) as (member,):
        wire = RouteWire(member.route_port)
        assert wire.info["compression"] == "s2_fast"
        wire.send(line("CONNECT", CONNECT) + line("INFO", {**INFO, "compression": "zip"}))
        assert wire.rest() == b"-ERR 'unsupported route compression mode \"zip\"'\r\n"
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_info_is_said_again_as_was_agreed_and_what_is_not_ends_the_connection(kinds: tuple[str, ...]) -> None:
    with compressing(kinds, ("compression: s2_fast",), pings="30s") as (member,):
        for sent, answered in ((S2().encode(line("INFO", INFO) + b"PING\r\n"), True), (b"RS+ $G a\r\n" * 10, False)):
            wire = RouteWire(member.route_port)
            wire.send(line("CONNECT", CONNECT) + line("INFO", {**INFO, "compression": "s2_fast"}))
            stream, heard = S2(), b""
            while b"\r\n" not in heard:
                wire.receive()
                heard += stream.decode(wire.said)
                wire.said = b""
            assert json.loads(heard.partition(b" ")[2])["compression"] == "s2_fast"
            wire.send(sent)
            while b"PONG\r\n" not in heard and not wire.closed:
                wire.receive()
                heard += stream.decode(wire.said)
                wire.said = b""
            assert (b"PONG\r\n" in heard) is answered
            wire.close()


def chunk(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(3, "little") + content


class Compressed:
    """A server that has come to say everything compressed."""

    def __init__(self, member: Member) -> None:
        self.wire, self.stream, self.heard = RouteWire(member.route_port), S2(), b""
        server_id = ID[:-5] + f"{next(NUMBERS):05}"
        info = {**INFO, "server_id": server_id, "compression": "s2_fast"}
        self.wire.send(line("CONNECT", {**CONNECT, "name": server_id}) + line("INFO", info))
        self.hear(b"\r\n")
        self.wire.send(self.stream.encode(line("INFO", info) + b"PING\r\n"))
        self.hear(b"PONG\r\n")

    def hear(self, end: bytes) -> bool:
        """Whether that comes, and not the end."""
        while end not in self.heard and not self.wire.closed:
            self.wire.receive()
            self.heard += self.stream.decode(self.wire.said)
            while self.stream.pending:
                self.heard += self.stream.decode(b"")
            self.wire.said = b""
        found = end in self.heard
        self.heard = self.heard.partition(end)[2]
        return found


def block_chunk(kind: int, packed: bytes, checksum: int) -> bytes:
    return chunk(kind, checksum.to_bytes(4, "little") + packed)


PING: Final = b"PING\r\n"
WRONG = masked_checksum(PING) ^ 1
DAMAGED = [
    block_chunk(0x01, PING, WRONG),  # as what is damaged on its way
    block_chunk(0x00, compress(FAST, PING * 1000)[:-1] + b"\xff", masked_checksum(PING * 1000)),
    block_chunk(0x00, b"\xff\xff\xff\xff\x0f", 0),  # of 4 GiB
    chunk(0x00, b"abc"), chunk(0x02, b""), chunk(0xFF, b"zIpPeD"), b"PING\r\n",
]  # fmt: skip


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_what_is_damaged_ends_the_connection_and_what_came_before_counts(kinds: tuple[str, ...]) -> None:
    with compressing(kinds, ("compression: s2_fast",), pings="30s") as (member,):
        wire = member.client(b"SUB hear 1\r\n")
        for number, damage in enumerate(DAMAGED):
            peer = Compressed(member)
            before = peer.stream.encode(b"RMSG $G hear 1\r\n%d\r\n" % number)
            peer.wire.send(before + damage + block_chunk(0x01, PING, masked_checksum(PING)))
            assert not peer.hear(b"PONG\r\n"), damage
            peer.wire.close()
        settled([member], [wire], len(DAMAGED))
        assert bodies(wire) == [b"%d" % n for n in range(len(DAMAGED))]
        wire.close()
        if member.kind == OURS:
            assert member.said().count("is no stream of S2") == len(DAMAGED), member.said()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_few_bytes_may_be_many_commands_and_a_chunk_may_come_in_many_pieces(kinds: tuple[str, ...]) -> None:
    with compressing(kinds, ("compression: s2_fast",), pings="30s") as (member,):
        peer = Compressed(member)
        lines = (b"+OK\r\n" * (4 << 20))[: 4 << 20]
        first = lines[:60]
        # A literal, and as much of it again and again as a block may be.
        packed = number_of(len(lines)) + literal(first) + bytes([2 | 4 << 2]) + (60).to_bytes(2, "little")
        packed += bytes([1 | 7 << 2, 0]) + (len(lines) - 65 - 65_540).to_bytes(3, "little")
        assert uncompress(packed) == lines
        bomb = block_chunk(0x00, packed, masked_checksum(lines))
        rest = lines[len(lines) // 5 * 5 :]  # the last line is cut off: the next block begins with what it lacks
        assert rest
        ends = b"+OK\r\n"[len(rest) :]
        for _ in range(8):
            peer.wire.send(bomb + peer.stream.encode(ends))
        for byte in peer.stream.encode(b"RMSG $G hear 1\r\nx\r\nPING\r\n"):
            peer.wire.send(bytes([byte]))
        assert peer.hear(b"PONG\r\n")
        assert not peer.wire.closed
        peer.wire.close()


# --- the format -------------------------------------------------------------------------------------------------------


def number_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def literal(content: bytes) -> bytes:
    count = len(content) - 1
    if count < 60:
        return bytes([count << 2]) + content
    size = (count.bit_length() + 7) // 8
    return bytes([59 + size << 2]) + count.to_bytes(size, "little") + content


def copied(made: bytearray, distance: int, length: int) -> None:
    for _ in range(length):
        made.append(made[-distance])


def between(ends: tuple[int, int]) -> st.SearchStrategy[int]:
    return st.integers(*ends)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A block, and what it stands for: of every kind of element there is."""
    made, packed, last = bytearray(), bytearray(), 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.integers(0, 4))
        if kind == 0 or not made:
            content = draw(st.one_of(st.binary(min_size=1, max_size=70), st.integers(61, 70_000).map(bytes)))
            packed += literal(content)
            made += content
        elif kind == 4 and last:
            length = draw(st.sampled_from(((4, 8), (8, 263), (260, 65_795), (65_540, 70_000))).flatmap(between))
            if length <= 8:
                packed += bytes([1 | length - 4 << 2, 0])
            elif length < 264:
                packed += bytes([1 | 5 << 2, 0, length - 8])
            elif length < 65_796:
                packed += bytes([1 | 6 << 2, 0]) + (length - 260).to_bytes(2, "little")
            else:
                packed += bytes([1 | 7 << 2, 0]) + (length - 65_540).to_bytes(3, "little")
            copied(made, last, length)
        else:
            near = kind == 1
            last = draw(st.integers(1, min(len(made), {1: 2047, 2: 65_535}.get(kind, 1 << 20))))
            length = draw(st.integers(4, 11) if near else st.integers(1, 64))
            if near:
                packed += bytes([1 | length - 4 << 2 | last >> 8 << 5, last & 0xFF])
            else:
                wide = 2 if kind == 2 else 4
                packed += bytes([(2 if kind == 2 else 3) | length - 1 << 2]) + last.to_bytes(wide, "little")
            copied(made, last, length)
    return number_of(len(made)) + bytes(packed), bytes(made)


@given(blocks())
def test_a_block_is_what_its_elements_say(block: tuple[bytes, bytes]) -> None:
    packed, made = block
    assert uncompress(packed) == made


@given(blocks(), st.data())
def test_a_block_that_is_damaged_breaks_nothing(block: tuple[bytes, bytes], data: st.DataObject) -> None:
    packed = bytearray(block[0])
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FilterError):
        uncompress(bytes(packed))
    with contextlib.suppress(FilterError):
        uncompress(block[0][: data.draw(st.integers(0, len(block[0])))])


@given(st.lists(blocks(), max_size=4), st.randoms(use_true_random=False))
def test_a_stream_comes_in_any_pieces_and_begins_again(parts: list[tuple[bytes, bytes]], chance: random.Random) -> None:
    stream = b""
    for number, (packed, made) in enumerate(parts):
        stream += chunk(0xFF, IDENTIFIERS[number % 2]) + chunk(0xFE, bytes(chance.randrange(9)))
        stream += chunk(0x00, masked_checksum(made).to_bytes(4, "little") + packed)
        stream += chunk(0x01, masked_checksum(b"!").to_bytes(4, "little") + b"!")
    filter, heard, at = S2(), b"", 0
    while at < len(stream) or filter.pending:
        piece = b""
        if not filter.pending:
            piece = stream[at : at + chance.choice((1, 5, 1000, 100_000))]
            at += len(piece)
        heard += (out := filter.decode(piece))
        assert len(out) <= 2 * PIECE_BYTES
    assert heard == b"".join(made + b"!" for _, made in parts)


LEVELS = (FAST, BETTER, BEST)


@given(
    st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 300_000).map(bytes)), max_size=4),
    st.sampled_from((None, *LEVELS)),
)
def test_what_is_sent_comes_back(pieces: list[bytes], level: int | None) -> None:
    out, back = S2(level), S2()
    heard = b""
    for piece in pieces:
        heard += back.decode(out.encode(piece))
        while back.pending:
            heard += back.decode(b"")
    assert heard == b"".join(pieces)


@given(blocks(), st.sampled_from(LEVELS), st.integers(0, BLOCK_BYTES))
def test_a_block_that_is_made_is_what_it_was_made_of(block: tuple[bytes, bytes], level: int, most: int) -> None:
    made = block[1][:most]
    packed = compress(level, made)
    assert uncompress(packed) == made
    assert len(packed) <= len(made) + 8


@pytest.mark.parametrize("level", [FAST, BETTER, BEST])
@pytest.mark.parametrize(("noise", "period"), [(61, 2048), (300, 304), (298, 302), (261, 265)])
def test_copies_that_save_nothing_make_a_block_no_longer(level: int, noise: int, period: int) -> None:
    """Four bytes that stood before, again and again, with noise between: to end the noise costs what they save."""
    chance = random.Random(noise)
    made = bytearray(chance.randbytes(period))
    while len(made) < BLOCK_BYTES - period:
        made += chance.randbytes(noise)
        made += made[len(made) - period :][:4]
    block = compress(level, bytes(made))
    assert uncompress(block) == made
    assert len(block) <= len(made) + 8


def lines(chance: random.Random) -> bytes:
    """As a route has them: much is said again and again, with other numbers."""
    said = b""
    while len(said) < BLOCK_BYTES:
        body = json.dumps({
            "id": chance.randrange(10**9), "customer": chance.choice(("anna", "bert", "carol")),
            "amount": chance.randrange(10_000) / 100, "status": chance.choice(("open", "paid", "shipped")),
        }).encode()  # fmt: skip
        said += b"RMSG $G orders.%d %d\r\n%s\r\n" % (chance.randrange(1000), len(body), body)
    return said[:BLOCK_BYTES]


def test_each_level_makes_less_of_it_than_the_one_before() -> None:
    said = lines(random.Random(1))
    fast, better, best = (len(compress(level, said)) for level in LEVELS)
    assert len(said) / 3 > fast > better * 1.03 > best * 1.06, (fast, better, best)
    # Of what there is nothing to be found in, and of nothing but one thing.
    for level in LEVELS:
        assert len(compress(level, random.Random(2).randbytes(BLOCK_BYTES))) <= BLOCK_BYTES + 8
        assert len(compress(level, bytes(BLOCK_BYTES))) < 20
        assert len(compress(level, said[:200] * 300)) < 300


@pytest.mark.parametrize(
    "wrong",
    [
        chunk(0x00, b"\0\0\0\0\0"), chunk(0xFF, b"zIpPeD"), IDENTIFIER_CHUNK + chunk(0x02, b""),
        IDENTIFIER_CHUNK + chunk(0x01, b"abc"), IDENTIFIER_CHUNK + chunk(0x01, b"\0\0\0\0x"),
        IDENTIFIER_CHUNK + b"\x01\xff\xff\xff", IDENTIFIER_CHUNK + chunk(0x00, b"\0\0\0\0\xff\xff\xff\xff\x0f"),
        IDENTIFIER_CHUNK + chunk(0x00, b"\0\0\0\0\x81\x80\x80\x02"),
    ],
)  # fmt: skip
def test_what_is_no_stream_is_refused(wrong: bytes) -> None:
    with pytest.raises(FilterError):
        S2().decode(wrong)


def test_snappys_streams_are_taken_too() -> None:
    assert S2().decode(Snappy().encode(b"snappy" * 10)) == b"snappy" * 10


def test_padding_that_a_piece_ends_with_holds_nothing_back() -> None:
    """What it consists of looks like a chunk that is not complete."""
    ends = b"".join([*[chunk(0xFE, b"")] * (PIECE_PARTS - 2), chunk(0xFE, b"\x01\xff\xff\xff" * 100)])
    s2 = S2()
    said = s2.decode(IDENTIFIER_CHUNK + ends + S2().encode(b"behind it"))
    while s2.pending:
        said += s2.decode(b"")
    assert said == b"behind it"
