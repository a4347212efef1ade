"""A systemd of one's own as the first process of namespaces of its own: with its processes all of it is gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.packages.given import lay_out

SECONDS: Final = 900
# The cgroup is made outside, where it can be removed; inside it is the root of all.
OUTSIDE: Final = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/cgroup" "$1/upper" "$1/work" "$1/root"
mount -t cgroup2 cgroup2 "$1/cgroup"
own="$1/cgroup/mq-shards-test-$$"
mkdir "$own"
status=0
sh -euc 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$own" \\
    unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup sh -euc "$3" sh "$1" "$2" || status=$?
find "$own" -depth -type d -exec rmdir {} +
exit $status
"""
# What a container's manager gives to the first process: see systemd.io/CONTAINER_INTERFACE.
INSIDE: Final = """
root="$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
# The kernel's settings are everybody's.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/given"
mount --bind "$2" "$root/given"
# None of this machine's own services.
rm -rf "$root"/etc/systemd/system/*.wants
# It says that services are not to be started, on machines for builds.
rm -f "$root/usr/sbin/policy-rc.d"
for unit in systemd-modules-load systemd-sysctl systemd-udevd; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
done
cp "$root/given/script.service" "$root/etc/systemd/system/"
hostname tested
cd "$root"
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=script.service
"""
# Its end is systemd's, with its status.
SERVICE: Final = """
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force
FailureActionExitStatus=1

[Service]
Type=oneshot
ExecStart=/bin/sh -eux /given/script
StandardOutput=file:/given/said
StandardError=file:/given/errors
"""


def can_be_had() -> bool:
    programs = all(map(shutil.which, ("unshare", "pivot_root", "dpkg-deb", "/lib/systemd/systemd", "/usr/bin/python3")))
    if not programs or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as directory:
        return _run(Path(directory), "true", {}).returncode == 0


def run(script: str, files: dict[str, Path]) -> str:
    """What a script of the shell says there, as root, when it is up; the files are in /given, by these names."""
    with tempfile.TemporaryDirectory() as directory:
        done = _run(Path(directory), script, files)
        said, errors = (path.read_text() if path.exists() else "" for path in _told(Path(directory)))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{said}\n{errors[-8000:]}"
    return said


def _told(directory: Path) -> tuple[Path, Path]:
    return directory / "given" / "said", directory / "given" / "errors"


def _run(directory: Path, script: str, files: dict[str, Path]) -> subprocess.CompletedProcess[str]:
    given, mounted = lay_out(directory, script, files)
    (given / "script.service").write_text(SERVICE)
    command = ["unshare", "--mount", "sh", "-euc", OUTSIDE, "sh", str(mounted), str(given), INSIDE]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
