"""A wheel without a compiler, a Debian package, what a Containerfile does: each on a system of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.packages import system

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not system.can_be_had(), reason="needs root, overlayfs, Debian and no systemd"),
]

# (`!` before a command never ends a script, whatever it comes to.)
NO: Final = 'no() { if "$@"; then exit 1; fi; }\n'
NO_COMPILER: Final = "rm -f /usr/bin/*gcc* /usr/bin/cc /usr/bin/c99 /usr/bin/*clang* /usr/bin/*g++*\n"
# Ports of its own: the network is everybody's.
START: Final = """
rm -f /tmp/said
setpriv --reuid=mq-shards --regid=mq-shards --init-groups {program} {options} >/tmp/said 2>&1 &
broker=$!
for _ in $(seq 600); do grep -q 'listening on beanstalk://' /tmp/said && break; sleep 0.1; done
port=$(sed -n 's,.*listening on beanstalk://127.0.0.1:,,p' /tmp/said)
[ -n "$port" ] || {{ cat /tmp/said; exit 1; }}
"""
STOP: Final = 'kill "$broker"; wait "$broker"\n'
PUT: Final = "python3 /given/ask.py $port 'put 0 0 60 5\r\nhello\r\n' INSERTED\n"
RESERVE: Final = "python3 /given/ask.py $port 'reserve\r\n' hello\n"


def wheel_of(made: dict[str, Path]) -> str:
    return next(name for name in made if name.endswith(".whl"))


def test_the_wheel_is_for_other_machines_too(made: dict[str, Path]) -> None:
    assert re.fullmatch(r"mq_shards-[\d.]+-cp311-abi3-manylinux_2_\d\d_\w+\.whl", wheel_of(made))


def test_the_wheel_installs_where_there_is_no_compiler(made: dict[str, Path]) -> None:
    start = START.format(
        program="/opt/new/bin/mq-shards", options="--data-dir /srv/mq --workers 1 --listen beanstalk://127.0.0.1:0"
    )
    script = (
        f"{NO_COMPILER}useradd --system mq-shards\ninstall -d -o mq-shards /srv/mq\n"
        "/usr/bin/python3 -m venv /opt/new\n"
        f"/opt/new/bin/pip install -q --disable-pip-version-check /given/{wheel_of(made)}\n"
        f"/opt/new/bin/mq-shards --version\n{start}{PUT}{STOP}{start}{RESERVE}{STOP}"
    )
    assert re.match(r"mq-shards \d", system.run(script, made))


def test_the_debian_package_serves_and_leaves_the_messages(made: dict[str, Path]) -> None:
    start = START.format(program="mq-shards", options="--config /etc/mq-shards.toml --workers 1")
    script = (
        f"{NO_COMPILER}dpkg -i /given/package.deb >/dev/null\n"
        "mq-shards --version\n"
        "grep -x 'ExecStart=/usr/bin/mq-shards --config /etc/mq-shards.toml' /lib/systemd/system/mq-shards.service\n"
        "grep -q '^ExecReload=' /lib/systemd/system/mq-shards.service\n"
        f"{NO}no grep -q DynamicUser /lib/systemd/system/mq-shards.service\n"
        "mq-shards check-config --config /etc/mq-shards.toml >/dev/null\n"
        "sed -i 's/127.0.0.1:[0-9]*/127.0.0.1:0/' /etc/mq-shards.toml\n"
        f"{start}{PUT}{STOP}"
        "dpkg -i --force-confold /given/package.deb >/dev/null\n"
        f"{start}{RESERVE}{STOP}"
        "stat -c '%U %a' /var/lib/mq-shards\n"
        "dpkg --purge mq-shards 2>/dev/null\n"
        "no test -e /etc/mq-shards.toml; no test -e /usr/bin/mq-shards; test -d /var/lib/mq-shards/shard-0000\n"
    )
    said = system.run(script, made)
    assert "mq-shards 750" in said and "are kept" in said


def test_what_the_containerfile_does(made: dict[str, Path]) -> None:
    container = system.ROOT / "deploy" / "container"
    lines = (container / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    steps = {line.split()[0]: line.partition(" ")[2] for line in lines if not line.startswith("#")}
    assert steps["COPY"].split() == ["dist/mq_shards-*.whl", "deploy/container/install", "/tmp/mq-shards/"]
    entry, arguments = (re.findall(r'"([^"]*)"', steps[name]) for name in ("ENTRYPOINT", "CMD"))
    start = START.format(
        program=" ".join(entry),
        options=re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", " ".join(arguments)),
    )
    script = (
        f"{NO_COMPILER}mkdir /tmp/mq-shards\ncp /given/*.whl /given/install /tmp/mq-shards/\n"
        f"{steps['RUN']}\n{NO}no test -e /tmp/mq-shards\n{start}{PUT}{STOP}{start}{RESERVE}{STOP}"
    )
    system.run(script, {**made, "install": container / "install"})
