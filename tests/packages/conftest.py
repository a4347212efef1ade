"""The packages that the tests install: made once for all tests, and again only when what they are made of changed."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.packages import system

DIST: Final = system.ROOT / "dist"
# Of what the packages in `dist` were made.
MADE_OF: Final = DIST / ".made-of"
ASK: Final = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as client:
    client.sendall(sys.argv[2].encode())
    heard = b""
    while sys.argv[3].encode() not in heard:
        received = client.recv(4096)
        assert received, heard
        heard += received
"""


def sources() -> str:
    """A hash of every file of the tree that a package could be made of; empty: this is no checkout of git's."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", ".", ":!tests", ":!docs"]
    listed = subprocess.run(command, cwd=system.ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        return ""
    of_all = hashlib.sha256()
    for name in sorted(listed.stdout.decode().split("\0")):
        path = system.ROOT / name
        if path.is_file():
            of_all.update(f"{name}\0{path.stat().st_mode:o}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return of_all.hexdigest()


def packages() -> tuple[Path, Path] | None:
    """The wheel and the Debian package, if both are there."""
    wheels, debian = sorted(DIST.glob("mq_shards-*.whl")), sorted(DIST.glob("mq-shards_*.deb"))
    return (wheels[0], debian[0]) if wheels and debian else None


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `make deb` makes, and what else is given to the systems."""
    made_of = sources()
    if not made_of or packages() is None or not MADE_OF.exists() or MADE_OF.read_text() != made_of:
        MADE_OF.unlink(missing_ok=True)
        done = subprocess.run(
            ["make", "deb"], cwd=system.ROOT, capture_output=True, text=True, timeout=1800, check=False
        )
        assert done.returncode == 0, done.stderr
        MADE_OF.write_text(made_of)
    found = packages()
    assert found is not None
    ask = tmp_path_factory.mktemp("packages") / "ask.py"
    ask.write_text(ASK)
    return {found[0].name: found[0], "package.deb": found[1], "ask.py": ask}
