"""Ids that count 1, 2, 3, as beanstalkd's do, and never come again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.options.options import Options, parse, shards_in_memory

from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, Server, running

SEQUENTIAL = ("--set", "beanstalk.ids=sequential")


def put(server: Server, count: int, *tubes: str) -> list[int]:
    with Wire(server) as wire:
        ids = []
        for n in range(count):
            wire.use(tubes[n % len(tubes)])
            ids.append(wire.put(b"x"))
        return ids


def delete(server: Server, *ids: int) -> None:
    with Wire(server) as wire:
        for number in ids:
            assert wire.ask(f"delete {number}") == b"DELETED"


def test_in_memory_with_one_worker_ids_count_also_when_it_was_killed() -> None:
    with running(SINGLE) as server:
        assert put(server, 5, "a", "b", "c") == [1, 2, 3, 4, 5]
        delete(server, 2, 5)
        server.replace("mq-worker-0")
        assert put(server, 2, "d", "a") == [6, 7]


def test_a_put_whose_body_does_not_end_takes_an_id_as_with_beanstalkd() -> None:
    with running(SINGLE) as server, Wire(server) as wire:
        wire.send(b"put 0 0 60 1\r\nabc")
        assert wire.reply().line == b"EXPECTED_CRLF"
        assert wire.put(b"x") == 2


def test_in_a_data_directory_ids_go_on_counting_after_each_start(tmp_path: Path) -> None:
    # As a program: it chooses the number of shards.
    with running(SINGLE, data_dir=tmp_path, options=SEQUENTIAL, as_program=True) as server:
        assert put(server, 4, "a", "b") == [1, 2, 3, 4]
        delete(server, 1, 4)
        server.kill()
    with running(SINGLE, data_dir=tmp_path, options=SEQUENTIAL) as server:
        assert put(server, 2, "b", "c") == [5, 6]
        delete(server, 2, 3, 5, 6)
        assert server.terminate() == 0
    with running(SINGLE, data_dir=tmp_path) as server:  # what has one shard goes on so, without the option too
        assert put(server, 1, "a") == [7]


def test_a_data_directory_of_many_shards_is_refused(tmp_path: Path) -> None:
    with running(SINGLE, data_dir=tmp_path, as_program=True) as server:
        put(server, 1, "a")
    with (
        pytest.raises(RuntimeError, match="has 64 shards, which is fixed, and not 1"),
        running(SINGLE, data_dir=tmp_path, options=SEQUENTIAL),
    ):
        pass


def test_more_shards_than_one_cannot_be_asked_for_at_the_same_time() -> None:
    with pytest.raises(OptionsError, match=r"--shards: 8 are given, and the options of \[beanstalk\] ask for 1"):
        parse(["--shards", "8", *SEQUENTIAL])
    assert parse(list(SEQUENTIAL)).shards == 1


def test_in_memory_several_workers_share_many_shards() -> None:
    assert [shards_in_memory(Options(workers=workers), 8) for workers in (1, 2, None)] == [1, 64, 64]
    assert shards_in_memory(Options(), 2) == 1
    assert shards_in_memory(Options(shards=16, workers=1), 8) == 16
