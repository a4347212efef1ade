"""A Debian system of one's own: this one, and what is written to it is gone at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.packages.given import lay_out

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 900
# In a mount namespace of its own: what is mounted there is gone with its last process.
MOUNT: Final = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mkdir "$1/root/given"
cp -r "$2"/. "$1/root/given"
exec chroot "$1/root" /bin/sh -eu /given/script
"""


def can_be_had() -> bool:
    programs = all(map(shutil.which, ("unshare", "chroot", "dpkg-deb", "/usr/bin/python3")))
    if not programs or os.geteuid() != 0 or Path("/run/systemd/system").exists():
        return False  # where systemd runs, the package would speak with it
    with tempfile.TemporaryDirectory() as directory:
        return _run(Path(directory), "true", {}).returncode == 0


def run(script: str, files: dict[str, Path]) -> str:
    """What a script of the shell says there, as root; the files are in /given, by these names."""
    with tempfile.TemporaryDirectory() as directory:
        done = _run(Path(directory), script, files)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _run(directory: Path, script: str, files: dict[str, Path]) -> subprocess.CompletedProcess[str]:
    given, mounted = lay_out(directory, script, files)
    own = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    command = [*own, "sh", "-euc", MOUNT, "sh", str(mounted), str(given)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
