"""Options: command line, file, --set, their limits, and what is said about what is wrong."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from shards.options import Listen, Options, OptionsError, parse, parse_listen, worker_count


def complaint(*arguments: str) -> str:
    with pytest.raises(OptionsError) as caught:
        parse(arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "mq.toml"


def test_defaults() -> None:
    options = parse([])
    assert options == Options()
    assert (options.workers, options.acceptors, options.shards, options.sync) == (None, 1, None, "interval")
    assert options.data_dir == Path("data")
    assert options.listen == (Listen("beanstalk", "127.0.0.1", 11300),)
    assert options.settings == {
        "beanstalk": {"max-job-size": 65535},
        "log": {"sync-interval": 50, "retention-hours": 24, "retention-bytes": 1 << 30},
        "broker": {"ring-bytes": 4 << 20, "worker-spin-us": 100, "acceptor-spin-us": 5, "max-connections": 65536},
    }
    assert (options.log_level, options.log_json, options.warnings) == ("info", False, ())


def test_every_option_of_the_command_line() -> None:
    options = parse(
        shlex.split(
            "--workers 3 --acceptors=2 --shards 128 --data-dir /d --sync always "
            "--listen beanstalk://0.0.0.0:1 --listen beanstalk://[::1]:2 "
            "--set beanstalk.max-job-size=10 --set 'log.retention-hours = 0' --log-level debug --log-json"
        )
    )
    assert (options.workers, options.acceptors, options.shards) == (3, 2, 128)
    assert (options.data_dir, options.sync, options.log_level, options.log_json) == (
        Path("/d"),
        "always",
        "debug",
        True,
    )
    assert options.listen == (Listen("beanstalk", "0.0.0.0", 1), Listen("beanstalk", "::1", 2))
    assert options.settings["beanstalk"]["max-job-size"] == 10
    assert options.settings["log"]["retention-hours"] == 0


def test_every_option_of_a_file(config: Path) -> None:
    config.write_text(
        'workers = 3\nacceptors = 2\nshards = 128\ndata-dir = "/d"\nmemory = false\nsync = "never"\n'
        'listen = ["beanstalk://h:1"]\nlog-level = "error"\nlog-json = true\n'
        "[beanstalk]\nmax-job-size = 10\n[log]\nsync-interval = 7\n[broker]\nring-bytes = 65_536\n"
    )
    options = parse(["--config", str(config)])
    assert (options.workers, options.acceptors, options.shards) == (3, 2, 128)
    assert (options.data_dir, options.sync, options.log_level, options.log_json) == (Path("/d"), "never", "error", True)
    assert options.listen == (Listen("beanstalk", "h", 1),)
    assert options.settings["beanstalk"] == {"max-job-size": 10}
    assert options.settings["log"]["sync-interval"] == 7
    assert options.settings["broker"]["ring-bytes"] == 65536


def test_the_command_line_wins_over_the_file(config: Path) -> None:
    config.write_text(
        'workers = 3\nacceptors = 5\ndata-dir = "/d"\nlisten = ["beanstalk://h:1", "beanstalk://h:2"]\n'
        "[log]\nsync-interval = 7\nretention-hours = 8\n"
    )
    arguments = f"--config {config} --workers 4 --memory --listen beanstalk://h:3 --set log.sync-interval=9"
    options = parse(arguments.split())
    assert (options.workers, options.acceptors, options.data_dir) == (4, 5, None)
    assert options.listen == (Listen("beanstalk", "h", 3),)
    assert options.settings["log"]["sync-interval"] == 9
    assert options.settings["log"]["retention-hours"] == 8


def test_a_data_dir_on_the_command_line_wins_over_memory_in_the_file(config: Path) -> None:
    config.write_text("memory = true\n")
    assert parse(["--config", str(config)]).data_dir is None
    assert parse(["--config", str(config), "--data-dir", "/d"]).data_dir == Path("/d")


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("beanstalk://127.0.0.1:11301", Listen("beanstalk", "127.0.0.1", 11301)),
        ("beanstalk://[::]:0", Listen("beanstalk", "::", 0)),
        ("beanstalk://[fe80::1]", Listen("beanstalk", "fe80::1", 11300)),
        ("beanstalk://localhost", Listen("beanstalk", "localhost", 11300)),
        ("BEANSTALK://queue.example.org:65535/", Listen("beanstalk", "queue.example.org", 65535)),
    ],
)
def test_addresses(text: str, listen: Listen) -> None:
    assert parse_listen(text) == listen


def test_an_address_is_shown_as_it_is_given() -> None:
    for text in ("beanstalk://127.0.0.1:11300", "beanstalk://[::1]:11300"):
        assert str(parse_listen(text)) == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--listen ftp://h:1", '--listen: "ftp" is not a protocol of this version (it has: beanstalk)'),
        ("--listen nsq://h:4150", '--listen: "nsq" is not a protocol of this version (it has: beanstalk)'),
        ("--listen h:1", '--listen: "h:1" is not SCHEME://HOST:PORT (IPv6: SCHEME://[ADDRESS]:PORT)'),
        ("--listen beanstalk://::1:5", '"beanstalk://::1:5" is not SCHEME://HOST:PORT'),
        ("--listen beanstalk://:5", '"beanstalk://:5" is not SCHEME://HOST:PORT'),
        ("--listen beanstalk://h:65536", 'port 65536 of "beanstalk://h:65536" is not between 0 and 65535'),
        ("--listen beanstalk://h:7 --listen beanstalk://h:7", "--listen: h port 7 is given twice"),
        ("--listen beanstalk://h:0 " * 17, "--listen: 17 addresses, at most 16 are possible"),
        ("--workers 0", "--workers: 0 is not between 1 and 64"),
        ("--workers 65", "--workers: 65 is not between 1 and 64"),
        ("--workers -1", "--workers: -1 is not between 1 and 64"),
        ("--workers two", '--workers: "two" is not a whole number'),
        ("--workers 1.5", '--workers: "1.5" is not a whole number'),
        ("--workers 99999999999999999999999", "is not between 1 and 64"),
        ("--acceptors 65", "--acceptors: 65 is not between 1 and 64"),
        ("--shards 4097", "--shards: 4097 is not between 1 and 4096"),
        ("--sync often", '--sync: "often" is not one of always, interval, never'),
        ("--log-level loud", '--log-level: "loud" is not one of debug, info, warning, error'),
        ("--data-dir d --memory", "--data-dir and --memory: only one of them is possible"),
        ("--set x", '--set: "x" is not SECTION.OPTION=VALUE'),
        ("--set beanstalk.max-job-size", "is not SECTION.OPTION=VALUE"),
        ("--set nats.x=1", '--set: "nats" is not a section (there are: beanstalk, log, broker)'),
        ("--set beanstalk.z=1", '--set: "z" is not an option of [beanstalk] (there are: max-job-size)'),
        ("--set beanstalk.max-job-size=big", '--set: beanstalk.max-job-size: "big" is not a whole number'),
        ("--set beanstalk.max-job-size=", '--set: beanstalk.max-job-size: "" is not a whole number'),
        ("--set beanstalk.max-job-size=-1", "--set: beanstalk.max-job-size: -1 is not between 0 and 1073741824"),
        ("--set log.sync-interval=0", "--set: log.sync-interval: 0 is not between 1 and 60000"),
        ("--set broker.ring-bytes=65537", "--set: broker.ring-bytes: 65537 is not a power of two"),
        ("--config /nowhere/mq.toml", "--config: cannot read /nowhere/mq.toml: No such file or directory"),
        ("--frobnicate", "unrecognized arguments: --frobnicate"),
        ("--work 3", "unrecognized arguments: --work 3"),
        ("--workers", "--workers: expected one argument"),
        ("serve", "unrecognized arguments: serve"),
    ],
)
def test_what_is_wrong_is_named(arguments: str, expected: str) -> None:
    assert expected in complaint(*arguments.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker = 3", '"worker" is not an option (there are: workers, acceptors, shards, data-dir, memory'),
        ("[nats]\nx = 1", "[nats] is not a section (there are: beanstalk, log, broker)"),
        ("[beanstalk]\nmax = 1", '"max" is not an option of [beanstalk] (there are: max-job-size)'),
        ("beanstalk = 1", "beanstalk is a section, write [beanstalk]"),
        ('workers = "3"', 'workers: "3" is not a whole number'),
        ("workers = 3.0", "workers: 3.0 is not a whole number"),
        ("workers = true", "workers: true is not a whole number"),
        ("workers = 0", "workers: 0 is not between 1 and 64"),
        ("memory = 1", "memory: 1 is not true or false"),
        ('log-json = "yes"', 'log-json: "yes" is not true or false'),
        ("data-dir = 7", "data-dir: 7 is not a path"),
        ('data-dir = ""', 'data-dir: "" is not a path'),
        ('memory = true\ndata-dir = "d"', "only one of them is possible"),
        ("sync = 1", "sync: 1 is not one of always, interval, never"),
        ('listen = "beanstalk://h:1"', "is not a list of SCHEME://HOST:PORT"),
        ("listen = []", "is not a list of SCHEME://HOST:PORT"),
        ("listen = [1]", "is not a list of SCHEME://HOST:PORT"),
        ('listen = ["nats://h:1"]', 'listen: "nats" is not a protocol of this version'),
        ('[beanstalk]\nmax-job-size = "1"', 'beanstalk.max-job-size: "1" is not a whole number'),
        ("[log]\nretention-hours = -1", "log.retention-hours: -1 is not between 0 and 87600"),
        ("workers = ", "is not TOML"),
        ("\0", "is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(config: Path, text: str, expected: str) -> None:
    config.write_text(text)
    said = complaint("--config", str(config))
    assert str(config) in said
    assert expected in said


def test_a_file_that_is_not_text_is_refused(config: Path) -> None:
    config.write_bytes(b"\xff\xfe")
    assert "is not TOML" in complaint("--config", str(config))


def test_too_large_a_job_size_is_lowered_with_a_warning() -> None:
    options = parse(["--set", "beanstalk.max-job-size=1073741825"])
    assert options.settings["beanstalk"]["max-job-size"] == 1073741824
    assert options.warnings == ("--set: beanstalk.max-job-size: 1073741825 is too large, 1073741824 is used",)
    assert not parse(["--set", "beanstalk.max-job-size=1073741824"]).warnings


def test_workers_default_to_the_cores_that_acceptors_leave() -> None:
    assert worker_count(None, acceptors=1, shards=64, cores=8) == 7
    assert worker_count(None, acceptors=2, shards=64, cores=2) == 1
    assert worker_count(None, acceptors=1, shards=4, cores=96) == 4
    assert worker_count(None, acceptors=1, shards=4096, cores=256) == 64
    assert worker_count(5, acceptors=1, shards=5, cores=2) == 5
    with pytest.raises(OptionsError, match="6 workers for 5 shards"):
        worker_count(6, acceptors=1, shards=5, cores=2)
