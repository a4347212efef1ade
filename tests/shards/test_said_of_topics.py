"""What acceptors say of a topic in OPEN and CHANGE: the worker knows no names. It is in the log, and what a release
that told it by the name has written is read as it meant it."""

from __future__ import annotations

import os
import struct

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.checksum import crc32c

from tests.shards.bench import OK, RESERVE, WATCH
from tests.shards.subscriptions import Channels
from tests.shards.test_naming import TOPIC, records

LATER = lib.TOPIC_SAID | lib.TOPIC_NON_PERSISTENT
CATALOG = struct.Struct("<IIII")


def take_back(bench: Channels) -> None:
    """Makes the TOPIC records those of a release in which acceptors did not say it."""
    for segment, fd in bench.segments[0]:
        at = 64
        while (size := struct.unpack("<I", os.pread(fd, 4, at))[0]) != 0:
            record = bytearray(os.pread(fd, size, at))
            if record[8] == TOPIC:
                flags = struct.unpack_from("<H", record, 10)[0]
                struct.pack_into("<H", record, 10, flags & ~LATER)
                crc = crc32c(bytes(record[8:]), crc32c(bytes(record[:4]) + struct.pack("<I", segment)))
                struct.pack_into("<I", record, 4, crc)
                os.pwrite(fd, record, at)
            at += (size + 7) & ~7


def is_ephemeral(bench: Channels, name: str) -> bool:
    answer = bench.ask(lib.MSG_CATALOG, 997, body=name.encode())
    return bool(CATALOG.unpack_from(answer.body)[1] & lib.FIGURES_EPHEMERAL)


def is_stored(bench: Channels, name: str) -> bool:
    bench.pub(name)
    return bench.catalog()[name].depth > 0


def test_it_is_not_the_name_that_says_it(bench: Channels) -> None:
    bench.said = {"short": lib.MSG_TOPIC_EPHEMERAL, "passing": lib.MSG_TOPIC_NON_PERSISTENT}
    for name in ("short", "passing", "long#ephemeral", "non-persistent://public/default/stored"):
        assert bench.change(lib.CHANGE_MAKE, name) == OK
    assert is_ephemeral(bench, "short") and not is_ephemeral(bench, "long#ephemeral")
    assert is_stored(bench, "non-persistent://public/default/stored") and not is_stored(bench, "passing")
    bench.restart()
    assert bench.catalog().keys() == {"long#ephemeral", "non-persistent://public/default/stored"}


def test_who_makes_a_channel_says_that_it_is_ephemeral(bench: Channels) -> None:
    bench.pub("t")
    assert bench.change(lib.CHANGE_MAKE, "t", "long#ephemeral") == OK
    assert bench.change(lib.CHANGE_MAKE, "t", "short", lib.MSG_CHANNEL_EPHEMERAL) == OK
    assert bench.catalog()["t"].channels.keys() == {"long#ephemeral", "short"}
    bench.restart()
    assert bench.catalog()["t"].channels.keys() == {"long#ephemeral"}


def test_a_durable_topic_stays_what_it_was_made_as_until_it_is_deleted(bench: Channels) -> None:
    bench.pub("t")
    bench.said["t"] = lib.MSG_TOPIC_EPHEMERAL | lib.MSG_TOPIC_NON_PERSISTENT
    for _ in range(2):
        bench.open("t", bench.topic("t"), flags=bench.said["t"])
        assert bench.change(lib.CHANGE_MAKE, "t") == OK
        assert not is_ephemeral(bench, "t")
        assert is_stored(bench, "t")
        bench.restart()
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    assert is_ephemeral(bench, "t") and not is_stored(bench, "t")


def test_a_tube_becomes_what_was_said_of_it_with_its_first_subscription(bench: Channels) -> None:
    bench.said["t"] = lib.MSG_TOPIC_EPHEMERAL
    job, _ = bench.pub("t", durable=False)
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == job
    bench.sub(1, "t", "c")
    assert is_ephemeral(bench, "t")


@pytest.mark.parametrize("said", [lib.MSG_TOPIC_EPHEMERAL, lib.MSG_TOPIC_NON_PERSISTENT])
def test_one_that_was_gone_at_a_start_and_is_made_anew_as_another_stays(bench: Channels, said: int) -> None:
    bench.said["t"] = said
    bench.pub("t")
    assert bench.change(lib.CHANGE_MAKE, "t", "old") == OK
    bench.restart()
    assert not bench.catalog()
    del bench.said["t"]
    bench.open("t", bench.topic("t"))
    bench.pub("t")
    assert bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    for _ in range(2):
        assert bench.catalog().keys() == {"t"}
        assert bench.catalog()["t"].channels.keys() == {"c"}
        assert bench.catalog()["t"].channels["c"].depth == 1
        bench.restart()


@pytest.mark.parametrize("rolls", [False, True])
def test_it_is_in_each_record_of_the_topic(bench: Channels, rolls: bool) -> None:
    bench.said["passing"] = lib.MSG_TOPIC_NON_PERSISTENT
    for name in ("passing", "plain"):
        assert bench.change(lib.CHANGE_MAKE, name) == OK
    if rolls:
        bench.numbers.clear()
        bench.restart()
        bench.pub("plain")
    said = {bytes(r.body): r.flags & LATER for r in records(bench) if r.kind == TOPIC}
    assert said[b"passing"] == lib.TOPIC_SAID | lib.TOPIC_NON_PERSISTENT
    assert said[b"plain"] == lib.TOPIC_SAID


def test_a_log_of_a_release_that_told_it_by_the_name_is_read_as_that_meant_it(bench: Channels) -> None:
    passing, short = "non-persistent://public/default/t", "t#ephemeral"
    bench.said[short] = lib.MSG_TOPIC_EPHEMERAL
    for name in (passing, short, "persistent://mine/x/t", "t"):
        assert bench.change(lib.CHANGE_MAKE, name) == OK
        assert bench.change(lib.CHANGE_MAKE, name, "c") == OK
    bench.stop()
    take_back(bench)
    bench.start()
    assert bench.catalog().keys() == {"persistent://mine/x/t", "t"}
    # What it wrote is this release's from the next record on.
    bench.pub("persistent://mine/x/t")
    bench.change(lib.CHANGE_PAUSE, "persistent://mine/x/t")
    last = [r.flags & LATER for r in records(bench) if r.kind == TOPIC and r.body == b"persistent://mine/x/t"][-1]
    assert last == lib.TOPIC_SAID
    bench.restart()
    assert bench.catalog().keys() == {"persistent://mine/x/t", "t"}
