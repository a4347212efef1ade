"""The terminal's commands where there are users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.broker import BOSS, CLERK, HOST, SHOP, Guarded, guarded
from tests.ready import readable
from tests.servers import wait_until
from tests.terminal.commands import ENVIRONMENT, MQ, ROOT, done, run


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), (BOSS, SHOP, CLERK)) as one:
        yield one


def test_tokens_and_passwords_are_said_by_each_protocol(broker: Guarded, tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text(SHOP.token + "\n")
    password.write_text(SHOP.password + "\n")
    ways = (("--token-file", str(token)), ("--user", SHOP.name, "--password-file", str(password)))
    for scheme in ("http", "nsq-http", "nsq", "nats", "pulsar"):
        at = ("--at", f"{scheme}://{HOST}:{broker.ports[scheme]}")
        for way in ways if scheme != "pulsar" else ways[:1]:
            done("publish", "orders", "x", *at, *way)
        assert run("publish", "orders", "x", *at).returncode == 1, scheme
        if scheme != "nats":  # whose PUB is not answered
            assert run("publish", "other", "x", *at, *ways[0]).returncode == 1, scheme
    wrong = tmp_path / "wrong"
    wrong.write_text("mqs_of-nobody\n")
    for scheme in ("http", "nsq-http"):
        at = ("--at", f"{scheme}://{HOST}:{broker.ports[scheme]}")
        assert b"login is needed (--token-file" in run("publish", "orders", "x", *at).stderr, scheme
        refused = run("publish", "orders", "x", *at, "--token-file", str(wrong))
        assert refused.stderr == f"mq-shards: {at[1]} does not know this login\n".encode()


def test_a_token_of_the_environment_or_of_an_argument_is_not_seen(broker: Guarded) -> None:
    at = ("--at", f"http://{HOST}:{broker.ports['http']}")
    env = {**ENVIRONMENT, "MQ_SHARDS_TOKEN": CLERK.token}
    found = subprocess.run([*MQ, "peek", "orders", *at], env=env, capture_output=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found
    tail = subprocess.Popen(
        [*MQ, "tail", "orders", "-f", "--token", CLERK.token, *at], cwd=ROOT, stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "MQ_SHARDS_TOKEN"},
    )  # fmt: skip
    try:
        seen = Path(f"/proc/{tail.pid}/cmdline")
        wait_until(lambda: "tail" in seen.read_text() and CLERK.token not in seen.read_text(), "it is hidden", 60)
        assert tail.stdout is not None
        wait_until(lambda: publish(broker) and readable([tail.stdout], 0.2), "it goes on", 60)
        assert b"seen" in tail.stdout.readline()
    finally:
        tail.kill()
        tail.wait()


def publish(broker: Guarded) -> bool:
    return broker.act(BOSS, do="publish", topic="orders", body="seen") == 200
