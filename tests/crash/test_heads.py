"""A start reads the heads of what is held instead of all of it, and who asks for it then has it, or is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, Server, running, wait_until

MIB = 1 << 20
BODIES = [bytes([n]) * 4_000_000 for n in range(40)]
OPTIONS = ("--shards", "1", "--set", f"beanstalk.max-job-size={len(BODIES[0])}")


def age(shard: Path) -> None:
    """As if all had been sealed long ago."""
    for path in shard.glob("*.log"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def heads_in(shard: Path) -> list[str]:
    return sorted(path.name for path in shard.glob("*.heads"))


def bytes_read(server: Server) -> int:
    return int(re.findall(r"\((\d+) bytes\)", server.said())[-1])


def with_heads(data: Path) -> list[str]:
    """Has jobs in three segments, the first two of which have heads; returns these files' names."""
    shard = data / "shard-0000"
    with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
        for body in BODIES:
            wire.put(body)
        wait_until(lambda: len(list(shard.glob("*.log"))) >= 3, "three segments")
    age(shard)
    with running(SINGLE, data_dir=data, options=OPTIONS) as server:
        assert bytes_read(server) > 128 * MIB
        wait_until(lambda: len(heads_in(shard)) == 2, "heads of those that are sealed")
        server.kill()
    return heads_in(shard)


def reserved(server: Server) -> list[bytes]:
    got = []
    with Wire(server) as wire:
        while (reply := wire.exchange("reserve-with-timeout 0")).body is not None:
            got.append(reply.body)
    return got


def test_a_start_reads_the_heads_of_jobs_and_has_the_jobs(tmp_path: Path) -> None:
    shard = tmp_path / "shard-0000"
    names = with_heads(tmp_path)
    assert sum((shard / name).stat().st_size for name in names) < 1 << 16
    with running(SINGLE, data_dir=tmp_path, options=OPTIONS) as server:
        assert bytes_read(server) < 64 * MIB
        assert reserved(server) == BODIES
        with Wire(server) as wire:
            for id in range(1, 1 + 8 * len(BODIES)):
                wire.ask(f"delete {id}")
        server.kill()
    # What a kill has left goes, heads go with their segments, and none are left of segments that are not there.
    (shard / "0000000077.heads").write_bytes(b"of a segment that an earlier release has removed")
    (shard / f"{names[0]}.new").write_bytes(b"half of it")
    none = ("--set", "log.retention-bytes=0")
    with running(SINGLE, data_dir=tmp_path, options=(*OPTIONS, *none)) as server:
        assert not list(shard.glob("*.heads.new"))  # a manifest may be just being saved
        wait_until(lambda: heads_in(shard) == [], "they are gone")
        assert "odd" not in server.said()


@pytest.mark.parametrize("what", ["heads", "body"])
def test_what_is_damaged_meanwhile_is_named_and_nothing_else_is_lost(tmp_path: Path, what: str) -> None:
    shard = tmp_path / "shard-0000"
    first = with_heads(tmp_path)[0]
    path = shard / (first if what == "heads" else first.replace("heads", "log"))
    content = path.read_bytes()
    at = content.rindex(BODIES[3][:64]) if what == "body" else len(content) // 2
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"damaged")
    with running(SINGLE, data_dir=tmp_path, options=OPTIONS) as server:
        got = reserved(server)
        if what == "heads":
            assert f"shard 0: {first} is not used: it is damaged" in server.said()
            assert got == BODIES
        else:
            assert got == BODIES[:3] + BODIES[4:]
            wait_until(lambda: "or damage), and is left out" in server.said(), "it is named")
            wait_until(lambda: not (shard / first).exists(), "the next start looks at all of it")
        server.kill()
    with running(SINGLE, data_dir=tmp_path, options=OPTIONS) as server:
        assert ("bytes are damaged" in server.said()) == (what == "body")
        server.kill()
