"""What lies in the ring of a worker whose requests wait for a segment: the test is the acceptor."""

from __future__ import annotations

from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import OK, PUBLISH, SHARDS
from tests.shards.subscriptions import Channels


def test_what_was_refused_before_a_request_that_waits_for_a_segment_lies_in_the_ring_no_more(bench: Channels) -> None:
    """Should the worker die, its acceptor refuses what it finds there: nobody is refused anything twice."""
    assert bench.sub(5, "t", "c") == OK
    bench.supply = lambda: None  # type: ignore[method-assign]
    sent, refused, left = 0, [], ffi.NULL
    while left == ffi.NULL:
        bench.raw(lib.MSG_FINISH, 5, id=98)
        bench.raw(PUBLISH, 6, topic=bench.topic("t"), id=bench.next_id, body=bytes(200_000))
        bench.next_id += SHARDS
        sent += 1
        refused += [a for a in bench.step() if a.kind == lib.MSG_REFUSED]
        left = lib.channel_unreleased(bench.channels[0], ffi.new("struct channel_place *"))
    assert left.kind == PUBLISH
    assert len(refused) == sent
