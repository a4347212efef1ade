"""What is no file, in the place of one of a data directory's: nobody waits for it, and what it stops is said."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mq_shards.gateway.pipeline import decisions, message_sections
from mq_shards.gateway.pipeline.decisions import DamagedError
from mq_shards.shards import durable, erased, unread
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.shards.durable import NotAFileError
from mq_shards.shards.erased import ErasedError
from mq_shards.shards.reader import index_file
from mq_shards.shards.readers import Unread
from mq_shards.shards.store import ShardStore
from mq_shards.shards.store_error import StoreError

from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, free_port, running, start

# Before the suite's own limit: nobody ever writes into these pipes.
pytestmark = pytest.mark.timeout(60)

Make = Callable[[Path], None]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()
    (path / "in it").touch()


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere/at/all")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = (pipe, directory, link_to_nothing, link_to_itself, device)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ShardStore]:
    data = DataDirectory.open_or_create(tmp_path / "data", 2)
    store = data.shard(1)
    yield store
    store.close()
    data.close()


@pytest.mark.parametrize("make", ODD)
def test_a_save_goes_through_whatever_lies_where_it_writes_first_but_a_directory(tmp_path: Path, make: Make) -> None:
    durable.save(tmp_path / "small.json", b"before")
    make(tmp_path / "small.json.new")
    if make is directory:
        with pytest.raises(NotAFileError, match=r"small\.json\.new is a directory"):
            durable.save(tmp_path / "small.json", b"after")
        assert (tmp_path / "small.json").read_bytes() == b"before"
        return
    durable.save(tmp_path / "small.json", b"after")
    assert (tmp_path / "small.json").read_bytes() == b"after"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.json"], "nothing was written through a link"


@pytest.mark.parametrize("make", ODD)
def test_who_reads_is_told_that_there_is_no_file_and_not_that_there_is_nothing(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "odd"
    make(path)
    for read in (
        durable.read,
        durable.sync_file,
        lambda path: unread.read_head(path, 1, frozenset()),
        lambda path: list(message_sections.in_file(path, 1)),
    ):
        with pytest.raises(OSError) as raised:
            read(path)
        assert not isinstance(raised.value, FileNotFoundError)
    make(tmp_path / "1.index")
    assert index_file.load(tmp_path / "1.log", 1, b"", 0) is None
    make(tmp_path / erased.NAME)
    with pytest.raises(ErasedError):
        erased.load(tmp_path)


@pytest.mark.parametrize("make", ODD)
def test_a_writer_whose_decision_is_no_file_holds_up_no_other(tmp_path: Path, make: Make) -> None:
    (tmp_path / "writers").mkdir()
    (tmp_path / "writers" / "one.json").write_text("{")
    make(tmp_path / "writers" / "two.json")
    found = dict(decisions.load_all(tmp_path))
    assert sorted(found) == ["one", "two"] and all(isinstance(error, DamagedError) for error in found.values())


@pytest.mark.parametrize("make", ODD)
def test_nothing_is_dropped_while_the_readers_folder_is_none(tmp_path: Path, make: Make) -> None:
    known = Unread(tmp_path)
    known.refresh()
    assert known.error == ""
    make(tmp_path / "readers")
    known.refresh()
    assert (known.error == "") == (make is directory)


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["0000000002.log", "0000000002.names", "0000000002.heads"])
def test_what_is_no_file_in_the_place_of_the_next_segments_is_put_aside(
    store: ShardStore, make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    os.close(store.create(1))
    make(store.path / name)
    os.close(store.create(2))
    copies = store.open_copies(2)
    assert copies is not None
    os.close(copies)
    assert f"shard 1: {name} is put aside: it is not a file" in caplog.messages
    assert os.path.lexists(store.path / "0000000002.odd")


@pytest.mark.parametrize("make", ODD)
def test_what_is_no_file_beside_the_manifest_is_put_aside_at_a_start(store: ShardStore, make: Make) -> None:
    os.close(store.create(1))
    make(store.path / "manifest.json.new")
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert not again.recover().notes
    os.close(again.create(1))
    assert os.path.lexists(again.path / "manifest.json.odd")
    again.close()


def file(path: Path) -> None:
    path.write_bytes(b"no folder")


@pytest.mark.parametrize("make", [file, *ODD[:1], *ODD[2:]])
def test_a_shards_folder_that_is_none_is_put_aside_or_refused(tmp_path: Path, make: Make) -> None:
    DataDirectory.open_or_create(tmp_path, 2).close()
    folder, odd = tmp_path / "shard-0001", tmp_path / "shard-0001.odd"
    for name in ("shard-0001.odd", "shard-0001.odd1"):
        shutil.rmtree(folder)
        make(folder)
        with pytest.raises(StoreError, match="shard 1 is refused: its folder is not a directory"):
            ShardStore(tmp_path, 1, refuse=True)
        assert not folder.is_dir() and not os.path.lexists(tmp_path / name), "nothing is touched"
        with contextlib.closing(ShardStore(tmp_path, 1)) as store:
            found = store.recover()
        said = f"its folder is not a directory: it is put aside as {name}"
        assert found.problems[0] == said and found.problems[1].startswith("its manifest is missing")
        assert found.segments == [] and os.path.lexists(odd)


def test_a_broker_serves_its_other_shards_beside_a_folder_that_is_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    DataDirectory.open_or_create(data, 2).close()
    with running(SINGLE, data_dir=data) as server, Wire(server.port) as wire:
        for tube in range(8):
            wire.use(f"t{tube}")
            wire.put(b"job")
        assert server.terminate() == 0
    shutil.rmtree(data / "shard-0001")
    pipe(data / "shard-0001")
    with pytest.raises(RuntimeError, match=r"shard 1 is refused: its folder is not a directory"):
        start(SINGLE, data_dir=data, options=("--damage", "refuse"))
    with running(SINGLE, data_dir=data) as server, Wire(server.port) as wire:
        left = sum(wire.ask(f"stats-tube t{tube}").startswith(b"OK") for tube in range(8))
        assert 0 < left < 8
        for tube in range(8):
            wire.use(f"t{tube}")
            wire.put(b"job")
        assert server.terminate() == 0
        assert "shard 1: its folder is not a directory: it is put aside as shard-0001.odd" in server.said()
        assert "Traceback" not in server.said()


@pytest.mark.parametrize("name", ["manifest.json", "0000000001.log"])
def test_a_folder_with_a_pipe_is_not_taken_for_one_that_is_half_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "shard-0000").mkdir()
    os.mkfifo(tmp_path / "shard-0000" / name)
    with pytest.raises(StoreError, match="not empty: it has shard-0000"):
        DataDirectory.open_or_create(tmp_path, 2)


@pytest.mark.parametrize("make", [pipe, link_to_itself])
def test_a_broker_serves_beside_odd_files_and_stops_in_time(tmp_path: Path, make: Make) -> None:
    data, port = tmp_path / "data", free_port()
    DataDirectory.open_or_create(data, 1).close()
    make(data / "readers")
    make(data / "erased.json.new")
    make(data / "staged")
    make(data / "writers")

    def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path, body)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer.status, said

    with running(SINGLE, data_dir=data, options=("--listen", f"http://127.0.0.1:{port}")) as server:
        status, why = ask("PUT", "/v1/readers/one", b'{"topic": 1}')
        assert status == 503 and b"readers" in why
        assert ask("GET", "/v1/topics")[0] == 200
        status, why = ask("PUT", "/v1/writers/one", b'{"batch": 1, "staged": []}')
        assert status == 500 and b"what was decided cannot be read" in why
        assert server.terminate() == 0
        said = server.said()
        assert "Traceback" not in said and "cannot serve PUT '/v1/readers/one'" in said
        assert "no writer publishes" in said and "what is staged cannot be read" in said
