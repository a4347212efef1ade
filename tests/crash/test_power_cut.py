"""A power cut: with --sync always, what was acknowledged is on the disk, and not only with the kernel.

The broker runs under a shim (powercut.c) that copies what is synced, as it is synced, to another directory. After the
processes were killed that copy is all that is left, and a broker is started on it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.crash.ledger import Client, Ledger
from tests.crash.test_passed_over import OPTIONS, fill, fill_small, read_from
from tests.preload import compiled
from tests.servers import MANY, SINGLE, Shape, running, shapes, wait_until

SOURCE = Path(__file__).with_name("powercut.c")
LOAD = 1000  # acknowledged commands


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


@dataclass
class Disk:
    """A data directory, and the copy of what was synced of it."""

    data: Path
    shadow: Path

    def after_the_cut(self, target: Path) -> Path:
        """Builds the directory that a power cut would leave."""
        self._build(self.data.stat().st_ino, target)
        return target

    def name_of(self, directory: Path, name: str) -> str:
        """Of the file in `shadow` that has what was synced of a file with a name that was synced."""
        lines = (self.shadow / f"names-{directory.stat().st_ino}").read_text().splitlines()
        (inode,) = [line.split(" ", 2)[0] for line in lines if line.endswith(f" f {name}")]
        return f"inode-{inode}"

    def _build(self, inode: int, target: Path) -> None:
        target.mkdir()
        names = self.shadow / f"names-{inode}"
        for line in names.read_text().splitlines() if names.exists() else []:
            number, kind, name = line.split(" ", 2)
            content = self.shadow / f"inode-{number}"
            if kind == "d":
                self._build(int(number), target / name)
            elif content.exists():
                shutil.copyfile(content, target / name)
            else:
                (target / name).touch()


def cut(shape: Shape, shim: Path, tmp_path: Path, sync: str) -> tuple[Ledger, Path]:
    """Load, then the cut: what the clients know, and the directory that is left."""
    disk = Disk(tmp_path / "data", tmp_path / "shadow")
    for path in (disk.data, disk.shadow):
        path.mkdir()
    env = {"LD_PRELOAD": str(shim), "POWERCUT_DIR": str(disk.data), "POWERCUT_SHADOW": str(disk.shadow)}
    ledger = Ledger()
    with running(shape, data_dir=disk.data, options=("--sync", sync), env=env) as server:
        clients = [Client(server, ledger, n) for n in range(4)]
        wait_until(lambda: ledger.acknowledged >= LOAD, "there has been some load", 30)
        server.kill()
        for client in clients:
            client.stop()
        assert "powercut" not in server.said()
    return ledger, disk.after_the_cut(tmp_path / "left")


@pytest.mark.parametrize("shape", shapes(SINGLE, MANY))
def test_what_was_acknowledged_survives_a_power_cut(shape: Shape, shim: Path, tmp_path: Path) -> None:
    ledger, left = cut(shape, shim, tmp_path, "always")
    with running(SINGLE, data_dir=left) as server:
        ledger.check(server)
        ledger.drain(server)


@pytest.mark.parametrize("shape", shapes(SINGLE))
def test_the_shim_can_tell_the_difference(shape: Shape, shim: Path, tmp_path: Path) -> None:
    """Without syncs there is something to lose, a job or what was done with it: if nothing were lost here, the test
    above would prove nothing."""
    ledger, left = cut(shape, shim, tmp_path, "never")
    with running(SINGLE, data_dir=left) as server, pytest.raises(AssertionError, match=r"is \w+ where it may be"):
        ledger.check(server)


def test_a_start_that_passes_over_segments_after_a_power_cut_has_what_was_moved_out_of_them(
    shim: Path, tmp_path: Path
) -> None:
    """It is told where to begin only when that is on the disk, though syncs are seldom."""
    disk = Disk(tmp_path / "data", tmp_path / "shadow")
    for path in (disk.data, disk.shadow):
        path.mkdir()
    env = {"LD_PRELOAD": str(shim), "POWERCUT_DIR": str(disk.data), "POWERCUT_SHADOW": str(disk.shadow)}
    options = (*OPTIONS, "--set", "log.sync-interval=2000")
    shard = disk.data / "shard-0000"

    def is_told() -> bool:
        return read_from(shard) > 3 and read_from(disk.shadow, disk.name_of(shard, "manifest.json")) > 3

    with running(SINGLE, data_dir=disk.data, options=options, env=env) as server:
        with Wire(server) as wire:
            fill_small(wire)
            kept = wire.put(b"kept")
            fill(wire, 5)
        wait_until(is_told, "it is moved, and what is finished passed over")
        server.kill()
        assert "powercut" not in server.said()
    left = disk.after_the_cut(tmp_path / "left")
    assert read_from(left / "shard-0000") > 3
    with running(SINGLE, data_dir=left, options=OPTIONS) as server, Wire(server) as wire:
        assert wire.exchange(f"peek {kept}").body == b"kept"
