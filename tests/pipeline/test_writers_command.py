"""`mq-pipeline writers`, with a broker: whose batches it remembers, and forgetting one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline import writers_command
from mq_shards.pipeline.arguments import of_staged, of_writers

from tests.nsq import api
from tests.pipeline.broker import Broker, broker_in


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("broker") / "data", workers=1) as broker:
        yield broker


def writers(broker: Broker, *arguments: str) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser()
    of_writers(parser)
    return writers_command.run(parser.parse_args(arguments), "local", {"brokers": broker.address})


def publish(broker: Broker, writer: str, batch: int) -> None:
    said = json.dumps({"batch": batch, "staged": []}).encode()
    reply = api.call(broker.http_port, "PUT", f"/v1/writers/{writer}", said)
    assert reply.json["state"] == "published"


def test_one_is_shown_and_forgotten(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    publish(broker, "hourly", 7)
    publish(broker, "daily", 3)
    assert writers(broker) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:5] for row in rows if row[0] in ("daily", "hourly")] == [
        ["daily", broker.address, "3", "published", "0"], ["hourly", broker.address, "7", "published", "0"]
    ]  # fmt: skip
    assert writers(broker, "--drop", "hourly") == 0
    assert [writer["writer"] for writer in broker.get("/v1/writers")["writers"]] == ["daily"]
    assert writers(broker, "--drop", "hourly") == 1
    assert "hourly is no writer" in capsys.readouterr().err
    publish(broker, "hourly", 1)  # it begins anew


def test_only_those_that_are_silent_for_long_are_forgotten(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    publish(broker, "silent", 1)
    assert writers(broker, "--drop-older", "90") == 0
    assert "silent" in [writer["writer"] for writer in broker.get("/v1/writers")["writers"]]
    assert writers(broker, "--drop-older", "0") == 0
    assert "dropped silent of" in capsys.readouterr().out
    assert broker.get("/v1/writers")["writers"] == []


@pytest.mark.parametrize("days", ["-1", "nan", "inf"])
def test_what_is_no_time_forgets_nobody(broker: Broker, days: str) -> None:
    publish(broker, "just-now", 1)
    with pytest.raises(SystemExit):
        writers(broker, f"--drop-older={days}")
    assert "just-now" in [writer["writer"] for writer in broker.get("/v1/writers")["writers"]]


@pytest.mark.parametrize("hours", ["-1", "nan", "inf"])
def test_what_is_no_time_removes_nothing_staged(hours: str) -> None:
    command = argparse.ArgumentParser(exit_on_error=False)
    of_staged(command)
    with pytest.raises(argparse.ArgumentError):
        command.parse_args([f"--drop-older={hours}"])
