"""The gateway's bytes: what workers say of topics, bodies of /mpub, and texts."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.gateway.catalog import DURABLE, Channel, Consumer, Topic, decode
from mq_shards.gateway.nsq import mpub
from mq_shards.gateway.nsq import stats as nsq_stats
from mq_shards.gateway.nsq.mpub import MpubError
from mq_shards.gateway.nsq.names import is_valid_name
from mq_shards.gateway.nsq.topics import is_visible

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=64)
NUMBERS = st.integers(0, 2**32 - 1)
LONG_NUMBERS = st.integers(0, 2**64 - 1)
CONSUMERS = st.builds(
    Consumer,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    LONG_NUMBERS,
    LONG_NUMBERS,
    LONG_NUMBERS,
    st.integers(0, 99),
    st.booleans(),
    NUMBERS,
    st.binary(max_size=9),
    st.booleans(),
)
CHANNELS = st.builds(
    Channel, NAMES, st.integers(0, 7), NUMBERS, *[LONG_NUMBERS] * 10, consumers=st.lists(CONSUMERS, max_size=2)
)
TOPICS = st.builds(
    Topic, NAMES, st.integers(0, 7), *[LONG_NUMBERS] * 4,
    channels=st.lists(CHANNELS, max_size=3, unique_by=lambda channel: channel.name),
    read_back=LONG_NUMBERS, read_back_bytes=LONG_NUMBERS, reserves=LONG_NUMBERS, deletes=LONG_NUMBERS,
    reserved=LONG_NUMBERS, delayed=LONG_NUMBERS, buried=LONG_NUMBERS, releases=LONG_NUMBERS, timeouts=LONG_NUMBERS,
    header_bytes=LONG_NUMBERS, more_parts=LONG_NUMBERS,
)  # fmt: skip


def encode(topics: Sequence[Topic]) -> bytes:
    """As csrc/ringbuf/message.h lays it out."""
    out = b""
    for t in topics:
        sizes = len(t.name), t.flags, len(t.channels), 5
        numbers = t.depth, t.messages, t.message_bytes, t.jobs, t.read_back, t.read_back_bytes, t.reserves, t.deletes
        numbers += t.reserved, t.delayed, t.buried, t.releases, t.timeouts, t.header_bytes, t.more_parts
        out += struct.pack("=IIII15Q", *sizes, *numbers) + t.name.encode()
        for c in t.channels:
            sizes = len(c.name), c.flags, c.consumer_count, len(c.consumers)
            figures = c.depth, c.in_flight, c.deferred, c.messages, c.requeues, c.timeouts
            figures += c.read_back, c.delivered, c.finished, c.in_flight_parts
            out += struct.pack("=IIII10Q", *sizes, *figures) + c.name.encode()
            for one in c.consumers:
                out += struct.pack(
                    "=IIIIQQQIHHII", one.acceptor, one.conn, one.credit, one.in_flight, one.messages, one.finishes,
                    one.requeues, len(one.description), one.sample_percent, one.is_leaving,
                    one.number, one.is_blocked,
                ) + one.description  # fmt: skip
    return out


class TestCatalog:
    @given(st.lists(TOPICS, max_size=3))
    def test_everything_comes_through(self, topics: list[Topic]) -> None:
        found = decode(encode(topics))
        for topic in topics:
            topic.channels.sort(key=lambda channel: channel.name)
        assert found == topics

    @given(st.lists(TOPICS, min_size=1, max_size=2), st.data())
    def test_half_of_one_is_none(self, topics: list[Topic], data: st.DataObject) -> None:
        whole = encode(topics)
        ends = {len(encode(topics[:count])) for count in range(len(topics) + 1)}
        cut = data.draw(st.integers(0, len(whole) - 1))
        if cut in ends:
            assert len(decode(whole[:cut])) < len(topics)
        else:
            with pytest.raises(ValueError, match="middle"):
                decode(whole[:cut])

    def test_what_is_shown(self) -> None:
        channel = Channel("c", 0, 0, 0, 0, 0, 0, 0, 0)
        assert is_visible(Topic("t", DURABLE, 0, 0, 0, 0))
        assert is_visible(Topic("t", 0, 0, 0, 0, 1))
        assert is_visible(Topic("t", 0, 0, 0, 0, 0, [channel]))
        assert not is_visible(Topic("t", 0, 0, 9, 9, 0)), "an empty tube is nothing of NSQ's"
        assert not is_visible(Topic("not/nsq", 0, 1, 1, 1, 1))


def lines_of(body: bytes) -> list[bytes]:
    return [line for line in body.split(b"\n") if line]


def unpacked(packed: bytes) -> list[bytes]:
    found = []
    while packed:
        (size,) = struct.unpack_from(">I", packed)
        found.append(packed[4 : 4 + size])
        packed = packed[4 + size :]
    return found


class TestMpubBodies:
    @given(st.lists(st.binary(max_size=5)))
    def test_lines(self, parts: list[bytes]) -> None:
        body = b"\n".join(parts)
        count, packed = asyncio.run(mpub.from_lines(body, 1000, 10_000))
        assert unpacked(packed) == lines_of(body)
        assert count == len(lines_of(body))

    @given(st.lists(st.binary(min_size=1, max_size=5), min_size=1), st.binary(max_size=3))
    def test_binary(self, bodies: list[bytes], behind: bytes) -> None:
        packed = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
        given_body = struct.pack(">I", len(bodies)) + packed
        assert asyncio.run(mpub.from_binary(given_body + behind, 5, 100_000)) == (len(bodies), packed)

    @given(st.binary(max_size=40))
    def test_anything(self, body: bytes) -> None:
        with contextlib.suppress(MpubError):
            count, packed = asyncio.run(mpub.from_binary(body, 10, 100))
            assert len(unpacked(packed)) == count > 0
            assert all(1 <= len(one) <= 10 for one in unpacked(packed))

    def test_others_are_served_meanwhile(self) -> None:
        async def play() -> int:
            turns = 0
            task = asyncio.create_task(mpub.from_lines(b"x\n" * 100_000, 10, 10**6))
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            return turns

        assert asyncio.run(play()) > 20


class TestTexts:
    @pytest.mark.parametrize(
        ("duration_ns", "text"),
        [
            (0, "0s"), (1, "1ns"), (999, "999ns"), (1000, "1µs"), (1_500_000, "1.5ms"), (999_999_999, "999.999999ms"),
            (10**9, "1s"), (61 * 10**9 + 50_000_000, "1m1.05s"), (3600 * 10**9, "1h0m0s"), (-(10**9), "-1s"),
            (100 * 3600 * 10**9 + 1, "100h0m0.000000001s"),
        ],
    )  # fmt: skip
    def test_durations_are_written_as_go_writes_them(self, duration_ns: int, text: str) -> None:
        assert nsq_stats.go_duration(duration_ns) == text

    @pytest.mark.parametrize("description", [b"", b"no json", b"[]", b'{"hostname": 5, "tls": "yes", "more": {}}'])
    def test_a_description_that_is_none_shows_as_nothing(self, description: bytes) -> None:
        consumer = Consumer(0, 1, 5, 1, 10, 8, 1, 0, False, 1, description)
        client = nsq_stats.client_json(consumer)
        assert (client["hostname"], client["tls"], client["version"]) == ("", False, "V2")
        assert (client["ready_count"], client["in_flight_count"], client["message_count"]) == (5, 1, 10)
        assert "more" not in client
        assert "authed" not in client

    @pytest.mark.parametrize(
        ("name", "valid"),
        [
            ("a", True), ("a.B-_9#ephemeral", True), ("x" * 64, True), ("x" * 54 + "#ephemeral", True), ("", False),
            ("x" * 65, False), ("#ephemeral", False), ("a\n", False), ("a#ephemeral\n", False), ("ä", False),
            ("a/b", False),
        ],
    )  # fmt: skip
    def test_names(self, name: str, valid: bool) -> None:
        assert is_valid_name(name) is valid
