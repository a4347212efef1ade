"""CPU time, memory and files of the broker's processes, from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    name: str  # as ps shows it
    cpu_s: float
    resident_bytes: int
    open_files: int


def broker_pids(supervisor: int) -> list[int]:
    """The supervisor and its children."""
    return [supervisor, *_children(supervisor)]


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def taken_bytes(pid: int) -> int:
    """The same, but a page that several processes share counts in part for each: of all of them together, once."""
    try:
        found = re.search(r"^Pss: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return resident_bytes(pid)  # it has ended, or has other rights than this process
    return int(found[1]) * 1024 if found is not None else 0


def own_bytes() -> int:
    """This process's resident memory without shared pages: neither code nor rings."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * PAGE_BYTES


def processes(supervisor: int) -> Iterator[Process]:
    for pid in broker_pids(supervisor):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (names are enough)
        except OSError:
            continue  # the process has ended
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2 :].split()
        yield Process(name, (int(fields[11]) + int(fields[12])) / TICKS, resident_bytes(pid), files)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    except OSError:
        pass  # the process has ended
    return found
