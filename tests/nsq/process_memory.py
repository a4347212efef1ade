"""What the broker's processes have in memory of their own: no files, nothing shared."""

from __future__ import annotations

import re
from pathlib import Path

from tests.nsq.servers import NsqServer
from tests.servers import comm_of


def own_bytes(server: NsqServer, kind: str) -> int:
    """Of all its processes whose names begin so, as mq-worker."""
    found = [pid for pid in server.pids() if comm_of(pid).startswith(kind)]
    assert found, f"no process {kind}"
    return sum(anonymous_bytes(pid) for pid in found)


def anonymous_bytes(pid: int) -> int:
    match = re.search(r"^RssAnon:\s+([0-9]+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024
