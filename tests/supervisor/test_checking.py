"""check-config refuses what the start would refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.supervisor import serve

Make = Callable[[Path], list[str]]


def directory_of_four(at: Path) -> list[str]:
    DataDirectory.open_or_create(at / "data", 4).close()
    return ["--data-dir", str(at / "data")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda at: ["--user", "no-such-user", "--memory"], '--user: there is no "no-such-user"'),
        (lambda at: ["--set", "broker.unix-owner=no-such-user", "--memory"], "broker.unix-owner: there is no"),
        (lambda at: ["--listen", f"nsq://unix:{at}/none/s", "--memory"], "there is no directory .*/none"),
        (lambda at: ["--listen", f"nsq://unix:{at}", "--memory"], "File exists"),
        (lambda at: ["--log-file", f"{at}/none/log", "--memory"], "cannot open the log file .*: there is no directory"),
        (lambda at: ["--log-file", str(at), "--memory"], "cannot open the log file .*: Is a directory"),
        (lambda at: ["--data-dir", "/dev/null/data"], "cannot be made: /dev/null is no directory"),
        (lambda at: [*directory_of_four(at), "--shards", "8"], "has 4 shards, which is fixed, and not 8"),
    ],
)  # fmt: skip
def test_what_this_machine_lacks_ends_it_with_the_status_of_a_start(
    arguments: Make, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = [] if "--listen" in (given := arguments(tmp_path)) else ["--listen", "nsq://127.0.0.1:0"]
    assert serve.main(["check-config", *given, *listen]) == 1
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda at: ["--memory", "--workers", "5", "--shards", "4"],
        lambda at: ["--memory", "--workers", "2", "--set", "beanstalk.ids=sequential"],
        lambda at: [*directory_of_four(at), "--workers", "5"],
    ],
)
def test_workers_without_a_shard_are_a_bad_option(
    arguments: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main(["check-config", *arguments(tmp_path)]) == 2
    assert "some would have none" in capsys.readouterr().err


def test_what_only_has_to_be_made_is_no_obstacle(tmp_path: Path) -> None:
    made = ["--data-dir", f"{tmp_path}/a/b", "--log-file", f"{tmp_path}/log", "--listen", f"nsq://unix:{tmp_path}/s"]
    assert serve.main(["check-config", *made]) == 0
    assert serve.main(["check-config", *directory_of_four(tmp_path), "--workers", "4"]) == 0
