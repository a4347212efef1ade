"""A start does not read segments in which all is finished, and has all that is left."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, Server, running, wait_until

BODY = bytes(4_000_000)
OPTIONS = ("--shards", "1", "--set", f"beanstalk.max-job-size={len(BODY)}")
SEGMENT = 64 << 20


def fill(wire: Wire, segments: int) -> None:
    """With jobs that are done with at once."""
    for _ in range(segments * (SEGMENT // len(BODY) + 1)):
        assert wire.ask(f"delete {wire.put(BODY)}") == b"DELETED"


def fill_small(wire: Wire) -> None:
    """So that a few jobs beside them are few."""
    for _ in range(100):
        assert wire.ask(f"delete {wire.put()}") == b"DELETED"


def read_from(shard: Path, name: str = "manifest.json") -> int:
    return int(json.loads((shard / name).read_bytes()).get("read-from", 0))


def newest(shard: Path) -> int:
    return max(int(path.stem) for path in shard.glob("*.log"))


def bytes_read(server: Server) -> int:
    """By the last start, as it said."""
    return int(re.findall(r"\((\d+) bytes\)", server.said())[-1])


def test_a_start_passes_over_what_is_finished_and_has_what_is_left(tmp_path: Path) -> None:
    data, shard = tmp_path / "data", tmp_path / "data" / "shard-0000"
    with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
        fill(wire, 1)
        fill_small(wire)
        ready, delayed, buried = wire.put(b"ready", pri=9), wire.put(b"delayed", delay=1000), wire.put(b"buried")
        assert wire.reserve() == (buried, b"buried")
        assert wire.ask(f"bury {buried} 7") == b"BURIED"
        # Those three keep their segment, until so much lies behind it that it is worth it to move them.
        fill(wire, 5)
        wait_until(lambda: read_from(shard) > 3, "they were moved")
        oldest = min(int(path.stem) for path in shard.glob("*.log"))
        assert oldest == 1, "all is kept for readers"
        server.kill()
    for gone in ("", "0000000002.log"):
        if gone:
            (shard / gone).unlink()
        first, last = read_from(shard), newest(shard)
        with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
            assert not gone or f"{gone} is missing" in server.said()
            assert bytes_read(server) < (last - first + 1) * SEGMENT
            for id, state in ((ready, "ready"), (delayed, "delayed"), (buried, "buried")):
                assert wire.exchange(f"peek {id}").body == state.encode()
                assert wire.stats_job(id)["state"] == state
            assert wire.ask(f"peek {buried + 1}") == b"NOT_FOUND", "what was finished does not come again"
            server.kill()


def test_a_start_that_finds_damage_reads_what_it_would_pass_over(tmp_path: Path) -> None:
    data, shard = tmp_path / "data", tmp_path / "data" / "shard-0000"
    with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
        fill(wire, 1)
        fill_small(wire)
        kept = wire.put(b"what is kept")
        fill(wire, 5)
        wait_until(lambda: read_from(shard) > 3, "it is moved, and what is finished passed over")
        wire.put(b"behind it")
        server.kill()
    first, last = read_from(shard), newest(shard)
    moved = next(
        log for log in sorted(shard.glob("*.log")) if int(log.stem) >= first and b"what is kept" in log.read_bytes()
    )
    with moved.open("r+b") as file:
        file.seek(moved.read_bytes().index(b"what is kept"))
        file.write(b"that")
    for _ in range(2):
        with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
            assert server.said().count("damaged") == 1 and f"segment {int(moved.stem)}, offset" in server.said()
            assert bytes_read(server) > (last - first + 1) * SEGMENT
            assert wire.exchange(f"peek {kept}").body == b"what is kept"
            assert wire.ask(f"peek {kept - 1}") == b"NOT_FOUND", "what was finished does not come again"
            server.kill()


def test_a_worker_that_dies_is_back_without_reading_what_is_finished(tmp_path: Path) -> None:
    shard = tmp_path / "data" / "shard-0000"
    with running(SINGLE, data_dir=tmp_path / "data", options=OPTIONS) as server:
        with Wire(server) as wire:
            fill_small(wire)
            kept = wire.put(b"kept")
            fill(wire, 5)
        wait_until(lambda: read_from(shard) > 3, "it is moved, and what is finished passed over")
        server.replace("mq-worker-0")
        with Wire(server) as wire:
            assert wire.exchange(f"peek {kept}").body == b"kept"
        assert bytes_read(server) < 3 * SEGMENT
