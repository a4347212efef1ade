"""Filters alone: what goes in comes out whatever the pieces, what is not of the format is refused, and others' programs
read what ours write. (Inside a broker they are in test_compression.py and test_tls.py.)
"""

from __future__ import annotations

import functools
import random
import ssl
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, Chain, Filter, FilterError
from mq_shards.acceptor.filters.deflate import Deflate
from mq_shards.acceptor.filters.snappy import BLOCK_BYTES, IDENTIFIER_CHUNK, Snappy
from mq_shards.acceptor.filters.tls import Tls
from mq_shards.acceptor.protocols.nsq import tls as nsq_tls
from mq_shards.supervisor.options.options import default_settings

from tests.nsq import frames, streams
from tests.nsq.certificates import CLIENT_NAME, Certificates, Pair
from tests.nsq.frames import OK
from tests.nsq.servers import NSQD, running
from tests.nsq.wire import Wire

KINDS: dict[str, Callable[[], Filter]] = {
    "snappy": Snappy,
    "deflate": lambda: Deflate(6),
    "deflate-1": lambda: Deflate(1),
    "deflate-0": lambda: Deflate(0),
}
Cut = Callable[[bytes], list[bytes]]


def cut_at_random(seed: int) -> Cut:
    draw = random.Random(seed)

    def cut(data: bytes) -> list[bytes]:
        pieces, at = [], 0
        while at < len(data):
            size = draw.choice([1, 2, 3, 10, 1000, 100_000])
            pieces.append(data[at : at + size])
            at += size
        return pieces

    return cut


def pieces_of_all_sorts() -> st.SearchStrategy[list[bytes]]:
    runs = st.builds(lambda byte, count: byte * count, st.binary(min_size=1, max_size=4), st.integers(0, 50_000))
    noise = st.builds(lambda seed, count: random.Random(seed).randbytes(count), st.integers(), st.integers(0, 200_000))
    return st.lists(st.one_of(st.binary(max_size=300), runs, noise), max_size=6)


def whole(filter: Filter | Chain, data: bytes) -> bytes:
    """All that has come, taken a piece at a time."""
    pieces = [filter.decode(data)]
    while filter.pending:
        pieces.append(filter.decode(b""))
    assert max(map(len, pieces)) < 2 * PIECE_BYTES
    return b"".join(pieces)


@pytest.mark.parametrize("kind", KINDS)
@given(pieces=pieces_of_all_sorts(), seed=st.integers())
def test_what_goes_in_comes_out_however_it_is_cut(kind: str, pieces: list[bytes], seed: int) -> None:
    ours, theirs = KINDS[kind](), KINDS[kind]()
    decoded = b""
    for number, piece in enumerate(pieces, 1):
        for part in cut_at_random(seed)(ours.encode(piece)):
            decoded += whole(theirs, part)
        # Nothing is held back.
        assert decoded == b"".join(pieces[:number])
    assert not theirs.ended


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_becomes_nothing(kind: str) -> None:
    filter = KINDS[kind]()
    assert filter.encode(b"") == b""
    assert filter.decode(b"") == b""


class TestSnappy:
    def test_another_implementation_of_the_framing_reads_it_and_is_read(self) -> None:
        draw = random.Random(1)
        pieces = [b"\0" * 200_000, draw.randbytes(200_000), b"x", b"ab" * 40_000]
        for ours, theirs in ((Snappy(), streams.Snappy()), (Snappy(), streams.Snappy(compress=False))):
            for piece in pieces:
                assert theirs.decode(ours.encode(piece)) == piece
                assert whole(ours, theirs.encode(piece)) == piece

    def test_what_does_not_compress_is_sent_as_it_is(self) -> None:
        noise = random.Random(2).randbytes(BLOCK_BYTES)
        assert len(Snappy().encode(noise)) == len(IDENTIFIER_CHUNK) + 8 + len(noise)
        assert len(Snappy().encode(b"x" * BLOCK_BYTES)) < BLOCK_BYTES // 10

    def test_padding_and_reserved_chunks_are_skipped_however_large(self) -> None:
        filter = Snappy()
        content = streams.snappy_chunk(b"content")
        skipped = (
            b"\xfe\x03\x00\x00---" + b"\x80\xff\xff\xff" + b"\xfd" * 0xFFFFFF + b"\x9a\x00\x00\x00" + IDENTIFIER_CHUNK
        )
        assert filter.decode(IDENTIFIER_CHUNK + skipped[:9]) == b""
        assert b"".join(whole(filter, part) for part in cut_at_random(3)(skipped[9:] + content)) == b"content"

    @pytest.mark.parametrize(
        "data",
        [
            streams.snappy_chunk(b"no identifier"),
            b"\xff\x06\x00\x00SNAPPY",
            b"\xff\x05\x00\x00sNaPp",
            IDENTIFIER_CHUNK + b"\x02\x00\x00\x00",
            IDENTIFIER_CHUNK + b"\x7f\x01\x00\x00x",
            IDENTIFIER_CHUNK + b"\x00\x03\x00\x00\x00\x00\x00",  # no room for a checksum
            IDENTIFIER_CHUNK + b"\x01\x04\x00\x00\x00\x00\x00\x00",  # a wrong one, of nothing
            IDENTIFIER_CHUNK + streams.snappy_chunk(b"x")[:-1] + b"y",
            IDENTIFIER_CHUNK + streams.snappy_chunk(b"x" * (BLOCK_BYTES + 1)),
            IDENTIFIER_CHUNK + streams.snappy_chunk(b"x" * (BLOCK_BYTES + 1), compress=False),
            IDENTIFIER_CHUNK + b"\x00\x0a\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x0f\x00",  # 4 GiB, it says
            IDENTIFIER_CHUNK + b"\x00\x09\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff",
            IDENTIFIER_CHUNK + b"\x00\xff\xff\xff",
        ],
        ids=lambda data: repr(data[-20:]),
    )
    def test_what_is_not_of_the_format_is_refused(self, data: bytes) -> None:
        with pytest.raises(FilterError):
            Snappy().decode(data)

    def test_an_unfinished_chunk_is_all_that_is_kept(self) -> None:
        filter = Snappy()
        chunk = streams.snappy_chunk(random.Random(4).randbytes(BLOCK_BYTES), compress=False)
        for _ in range(100):
            assert filter.decode((IDENTIFIER_CHUNK + chunk)[:-1]) == b""
            assert filter.decode(chunk[-1:]) == chunk[8:]

    def test_many_small_chunks_are_taken_a_few_at_a_time(self) -> None:
        filter = Snappy()
        chunks = streams.snappy_chunk(b"x") * 1000 + b"\xfe\x00\x00\x00" * 1000
        pieces = [filter.decode(IDENTIFIER_CHUNK + chunks)]
        while filter.pending:
            pieces.append(filter.decode(b""))
        assert b"".join(pieces) == b"x" * 1000
        assert max(map(len, pieces)) <= PIECE_PARTS
        assert len(pieces) > 2000 // PIECE_PARTS

    def test_of_a_bomb_only_a_piece_is_made_at_a_time(self) -> None:
        filter = Snappy()
        data = IDENTIFIER_CHUNK + streams.snappy_chunk(b"NOP\n" * (BLOCK_BYTES // 4)) * PIECE_PARTS
        tracemalloc.start()
        made = len(filter.decode(data))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < len(data) + 4 * PIECE_BYTES
        while filter.pending:
            made += len(filter.decode(b""))
        assert made == PIECE_PARTS * BLOCK_BYTES


class TestDeflate:
    def test_a_bomb_is_made_a_piece_at_a_time_and_all_of_it_comes(self) -> None:
        filter = Deflate(6)
        bomb = zlib.compressobj(9, wbits=-15)
        data = bomb.compress(b"NOP\n" * (5 << 20)) + bomb.flush(zlib.Z_SYNC_FLUSH)
        assert len(data) < 60_000
        made = [len(filter.decode(data))]
        while filter.pending:
            made.append(len(filter.decode(b"")))
        assert sum(made) == 20 << 20
        assert max(made) == PIECE_BYTES

    def test_it_has_not_ended_while_there_is_more(self) -> None:
        stream = zlib.compressobj(9, wbits=-15)
        chain = Chain()
        chain.add(Deflate(6))
        data = chain.decode(stream.compress(b"x" * 200_000) + stream.flush())
        while chain.pending:
            assert not chain.ended
            data += chain.decode(b"")
        assert data == b"x" * 200_000
        assert chain.ended

    @pytest.mark.parametrize("data", [b"\xff" * 10, b"PUB in the clear\n", b"\x06"], ids=repr)
    def test_what_is_not_of_the_format_is_refused(self, data: bytes) -> None:
        with pytest.raises(FilterError):
            Deflate(6).decode(data * 10)

    def test_the_end_of_the_stream_is_noticed_and_nothing_behind_it_counts(self) -> None:
        whole = zlib.compressobj(wbits=-15)
        data = whole.compress(b"all") + whole.flush()
        filter = Deflate(6)
        assert filter.decode(data + b"behind") == b"all"
        assert filter.ended
        assert filter.decode(b"more") == b""


class Whole:
    """A filter of which everything is had at once, for a client."""

    def __init__(self, filter: Filter) -> None:
        self.encode = filter.encode
        self.decode = functools.partial(whole, filter)


@pytest.mark.skipif(NSQD.missing is not None, reason=NSQD.missing or "")
class TestWithGo:
    """The other side is the real nsqd, whose formats are Go's compress/flate and golang/snappy."""

    @pytest.mark.parametrize(
        ("asked", "make"), [("snappy", Snappy), *(("deflate", lambda n=n: Deflate(n)) for n in (1, 6, 9))]
    )
    def test_it_reads_what_we_write_and_we_what_it_writes(
        self, asked: str, make: Callable[[], Filter], topic: str
    ) -> None:
        draw = random.Random(5)
        bodies = [
            b"\0" * (1 << 20), draw.randbytes(1 << 20), *(draw.randbytes(draw.randint(1, 300)) for _ in range(300)),
            *(b"ab" * draw.randint(1, 60_000) for _ in range(20)),
        ]  # fmt: skip
        with running(NSQD, {"max-deflate-level": "9"}) as server, Wire(server) as wire:
            wire.identify(output_buffer_timeout=25, **{asked: True})
            wire._start_filter(Whole(make()))
            assert wire.frame() == OK
            for at in range(0, len(bodies), 50):
                wire.publish_many(topic, bodies[at : at + 50])
            wire.subscribe(topic, "ch", rdy=2500)
            messages = wire.messages(len(bodies))
            assert sorted(message.body for message in messages) == sorted(bodies)
            for message in messages:
                wire.send(frames.fin(message.id))
            assert wire.is_not_in_flight(messages[-1])


# --- TLS --------------------------------------------------------------------------------------------------------------


class Client:
    """The other end of a Tls, made of the standard library."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def handshake(self, server: Tls, cut: Cut = lambda data: [data]) -> bool:
        """Whether both agreed. Raises what either raises."""
        ours = theirs = False
        for _ in range(10):
            if not theirs:
                try:
                    self.tls.do_handshake()
                    theirs = True
                except ssl.SSLWantReadError:
                    pass
            for piece in cut(self.outgoing.read()):
                try:
                    ours = server.handshake(piece) if not ours else bool(server.decode(piece)) or True
                finally:
                    self.incoming.write(server.outgoing())
        return ours and theirs

    def write(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def read(self, data: bytes) -> bytes:
        self.incoming.write(data)
        found = b""
        try:
            while part := self.tls.read(1 << 20):
                found += part
        except ssl.SSLWantReadError:
            pass
        return found


@pytest.fixture
def settings(tls_options: dict[str, str]) -> dict[str, Any]:
    return {**default_settings()["nsq"], **tls_options}


def server_for(settings: dict[str, Any], **changed: str) -> Tls:
    make = nsq_tls.factory({**settings, **{name.replace("_", "-"): value for name, value in changed.items()}})
    assert make is not None
    return make()


POLICIES = ["", "require-verify", "require"]


@pytest.fixture(params=POLICIES, ids=lambda policy: policy or "none")
def policy(request: pytest.FixtureRequest) -> str:
    if request.param == "require":
        pytest.importorskip("OpenSSL.SSL", reason="pyOpenSSL is not installed")
    chosen: str = request.param
    return chosen


VERSIONS = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
class TestTls:
    def context(
        self, certificates: Certificates, pair: Pair | None = None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLContext:
        context = certificates.context(pair)
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        return context

    @pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
    def test_each_version_that_is_allowed(
        self, settings: dict[str, Any], certificates: Certificates, policy: str, version: ssl.TLSVersion
    ) -> None:
        server = server_for(settings, tls_client_auth_policy=policy, tls_min_version="tls1.0")
        client = Client(self.context(certificates, certificates.client, version))
        assert client.handshake(server, cut_at_random(6))
        assert server.version == "TLS1." + str(VERSIONS.index(version))
        assert server.cipher.startswith("TLS_")
        assert server.common_name == (CLIENT_NAME if policy else "")
        question, reply = random.Random(7).randbytes(300_000), random.Random(8).randbytes(1_000_000)
        assert b"".join(whole(server, part) for part in cut_at_random(9)(client.write(question))) == question
        assert client.read(server.encode(reply)) == reply
        assert not server.ended
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        assert server.decode(client.outgoing.read()) == b""
        assert server.ended

    @pytest.mark.parametrize(("least", "most"), [("tls1.1", 0), ("tls1.2", 1), ("tls1.3", 2), ("TLS1.3", 2)])
    def test_an_older_version_is_refused(
        self, settings: dict[str, Any], certificates: Certificates, policy: str, least: str, most: int
    ) -> None:
        server = server_for(settings, tls_client_auth_policy=policy, tls_min_version=least)
        with pytest.raises(FilterError):
            Client(self.context(certificates, certificates.client, VERSIONS[most])).handshake(server)

    @pytest.mark.parametrize("version", VERSIONS[2:], ids=lambda version: version.name)
    def test_whose_certificate_is_taken(
        self, settings: dict[str, Any], certificates: Certificates, policy: str, version: ssl.TLSVersion
    ) -> None:
        taken: dict[str, list[str | None]] = {
            "": [None, "stranger", "client"], "require": ["stranger", "client"], "require-verify": ["client"]
        }  # fmt: skip
        for name in (None, "stranger", "client"):
            pair = getattr(certificates, name) if name else None
            client = Client(self.context(certificates, pair, version))
            server = server_for(settings, tls_client_auth_policy=policy)
            if name in taken[policy]:
                assert client.handshake(server)
                shown = {"stranger": "stranger", "client": CLIENT_NAME, None: ""}[name]
                assert server.common_name == (shown if policy else "")
            else:
                # The client is told by an alert; which of the two hears first depends on the version.
                with pytest.raises((FilterError, ssl.SSLError)):
                    client.handshake(server)

    @pytest.mark.parametrize("data", [b"PUB in the clear\n", b"\x16\x03\x01\x00\x04abcd", b"\0" * 100], ids=repr)
    def test_what_is_no_handshake_is_refused(self, settings: dict[str, Any], policy: str, data: bytes) -> None:
        with pytest.raises(FilterError):
            server_for(settings, tls_client_auth_policy=policy).handshake(data * 3)

    def test_many_small_records_are_taken_a_few_at_a_time(
        self, settings: dict[str, Any], certificates: Certificates, policy: str
    ) -> None:
        server = server_for(settings, tls_client_auth_policy=policy)
        client = Client(self.context(certificates, certificates.client))
        assert client.handshake(server)
        data = b"".join(client.write(b"x") for _ in range(1000))
        pieces = [server.decode(data)]
        while server.pending:
            pieces.append(server.decode(b""))
        assert b"".join(pieces) == b"x" * 1000
        assert max(map(len, pieces)) <= PIECE_PARTS

    def test_a_small_record_takes_little_memory_while_it_is_read(
        self, settings: dict[str, Any], certificates: Certificates
    ) -> None:
        """From 128 KiB on each buffer is mapped by the kernel and unmapped again, which takes longer than the rest."""
        server = server_for(settings)
        client = Client(self.context(certificates))
        assert client.handshake(server)
        record = client.write(b"x")
        tracemalloc.start()
        try:
            assert server.decode(record) == b"x"
            server.outgoing()
            assert tracemalloc.get_traced_memory()[1] < 64 << 10
        finally:
            tracemalloc.stop()

    def test_a_record_that_was_changed_is_refused(
        self, settings: dict[str, Any], certificates: Certificates, policy: str
    ) -> None:
        server = server_for(settings, tls_client_auth_policy=policy)
        client = Client(self.context(certificates, certificates.client))
        assert client.handshake(server)
        record = client.write(b"content")
        with pytest.raises(FilterError):
            server.decode(record[:-1] + bytes([record[-1] ^ 1]))
        assert server.outgoing(), "an alert"

    @pytest.mark.parametrize("kind", KINDS)
    def test_compression_goes_inside(
        self, settings: dict[str, Any], certificates: Certificates, policy: str, kind: str
    ) -> None:
        tls = server_for(settings, tls_client_auth_policy=policy)
        client = Client(self.context(certificates, certificates.client))
        assert client.handshake(tls)
        chain, theirs = Chain(), KINDS[kind]()
        chain.add(tls)
        assert client.read(chain.encode(b"first")) == b"first"
        chain.add(KINDS[kind]())
        for data in (b"x" * 500_000, random.Random(10).randbytes(200_000), b"y"):
            assert whole(theirs, client.read(chain.encode(data))) == data
            parts = cut_at_random(11)(client.write(theirs.encode(data)))
            assert b"".join(whole(chain, part) for part in parts) == data
        assert not chain.ended
