"""Options: command line, file, --set, their limits, and what is said about what is wrong."""

from __future__ import annotations

import os
import shlex
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.option_kinds import (
    HOUR,
    MINUTE,
    MS,
    SECOND,
    Duration,
    OptionsError,
    duration_text,
    parse_duration,
)
from mq_shards.acceptor.protocols.nsq.options import HOST_NODE_ID, node_id
from mq_shards.supervisor.options import command_line
from mq_shards.supervisor.options.listen import Listen, parse_listen
from mq_shards.supervisor.options.options import Options, parse, worker_count
from mq_shards.supervisor.options.sections import SECTIONS


def complaint(*arguments: str) -> str:
    with pytest.raises(OptionsError) as caught:
        parse(arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def nsq(*sets: str) -> dict[str, object]:
    """The section as it is with these after --set."""
    given = [word for text in sets for word in ("--set", f"nsq.{text}")]
    return dict(parse(["--listen", "nsq://127.0.0.1:4150", *given]).settings["nsq"])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "mq.toml"


# What nsqd 1.3.0 answers to GET /config/..., with the same names.
NSQD_DEFAULTS = {
    "msg-timeout": 60 * SECOND, "max-msg-timeout": 15 * MINUTE, "max-msg-size": 1048576, "max-body-size": 5242880,
    "max-req-timeout": HOUR, "client-timeout": 60 * SECOND, "max-heartbeat-interval": 60 * SECOND,
    "max-rdy-count": 2500, "max-output-buffer-size": 65536, "max-output-buffer-timeout": 30 * SECOND,
    "min-output-buffer-timeout": 25 * MS, "output-buffer-timeout": 250 * MS, "max-channel-consumers": 0,
    "tls-cert": "", "tls-key": "", "tls-client-auth-policy": "", "tls-root-ca-file": "", "tls-required": "false",
    "tls-min-version": "tls1.0", "deflate": True, "max-deflate-level": 6, "snappy": True,
    "auth-http-address": [], "lookupd-tcp-address": [], "broadcast-address": socket.gethostname(),
    "broadcast-tcp-port": 0, "broadcast-http-port": 0, "node-id": HOST_NODE_ID,
    "http-client-connect-timeout": 2 * SECOND, "http-client-request-timeout": 5 * SECOND,
    "statsd-address": "", "statsd-prefix": "nsq.%s", "statsd-interval": 60 * SECOND, "statsd-mem-stats": True,
    "statsd-udp-packet-size": 508, "statsd-exclude-ephemeral": False,
}  # fmt: skip


NATS_DEFAULTS = {
    "server-name": "", "user": "", "password": "", "token": "", "auth-timeout": 2 * SECOND,
    "max-payload": 1 << 20, "max-control-line": 4096, "max-subscriptions": 0, "max-pending": 64 << 20,
    "write-deadline": 10 * SECOND, "ping-interval": 120 * SECOND, "ping-max": 2,
}  # fmt: skip


def test_a_path_that_the_locale_cannot_say_is_one_line(tmp_path: Path) -> None:
    """stdout and stderr are of that locale too."""
    (tmp_path / "mq.toml").write_text('data-dir = "/tmp/\u6ce8"\nlisten = ["nsq://127.0.0.1:1"]\n')
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--config", str(tmp_path / "mq.toml")]
    locale = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert b"cannot be said in this locale" in done.stderr


def test_defaults() -> None:
    options = parse([])
    assert options == Options()
    assert (options.workers, options.acceptors, options.shards, options.sync) == (None, 1, None, "interval")
    assert options.data_dir == Path("data")
    assert [str(listen) for listen in options.listen] == [
        "beanstalk://127.0.0.1:11300", "nsq://127.0.0.1:4150", "nsq-http://127.0.0.1:4151", "nats://127.0.0.1:4222",
        "pulsar://127.0.0.1:6650", "pulsar-http://127.0.0.1:8080",
        "http://127.0.0.1:4180", "nats-http://127.0.0.1:8222",
    ]  # fmt: skip
    nats = options.settings["nats"]
    assert {name: nats[name] for name in NATS_DEFAULTS} == NATS_DEFAULTS  # and what nats-server.conf has beside these
    # What other sections there are has its defaults beside it.
    assert {name: options.settings[name] for name in ("beanstalk", "nsq", "pulsar", "log", "http", "broker")} == {
        "beanstalk": {"max-job-size": 65535, "ids": ""},
        "nsq": NSQD_DEFAULTS,
        "pulsar": {
            "max-message-size": 5 << 20,
            "keep-alive": 30 * SECOND,
            "policies-interval": 60 * SECOND,
            "deduplication": False,
            "advertised-url": "",
            "tls-cert-file": "",
            "tls-key-file": "",
            "tls-trust-certs-file": "",
            "tls-client-cert-optional": False,
            "token-secret-key-file": "",
            "token-public-key-file": "",
            "token-public-alg": "rs256",
            "token-auth-claim": "sub",
            "basic-auth-file": "",
            "tls-auth": False,
            "authorization-enabled": False,
            "super-user-roles": [],
            "proxy-roles": [],
            "anonymous-role": "",
        },
        "log": {
            "sync-interval": 50,
            "retention-hours": 24,
            "retention-bytes": 1 << 30,
            "reader-bytes": 4 << 30,
            "erased-hours": 87_600,
        },
        "http": {"staged-bytes": 16 << 30, "metrics-topics": 1000, "hosts": []},
        "broker": {
            "ring-bytes": 4 << 20,
            "worker-spin-us": 100,
            "acceptor-spin-us": 5,
            "mesh-ring-bytes": 256 << 10,
            "unix-mode": "660",
            "unix-owner": "",
            "stop-timeout": 60_000_000_000,
            "hang-timeout": 30_000_000_000,
            "max-buffered-bytes": 256 << 20,
            "max-connections": 65536,
        },
    }
    assert (options.log_level, options.log_json, options.warnings) == ("info", False, ())


def test_a_protocol_may_have_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECTIONS, "plain", {})
    shown = command_line.parser_of_options().format_help()
    assert "[nsq]" in shown and "[plain]" not in shown


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
    assert options.settings["beanstalk"] == {"max-job-size": 10, "ids": ""}
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
        ("nsq://[::]:0?both", Listen("nsq", "::", 0, both=True)),
        ("nsq://:5?both", Listen("nsq", "0.0.0.0", 5, both=True)),
        ("beanstalk://[fe80::1]", Listen("beanstalk", "fe80::1", 11300)),
        ("beanstalk://localhost", Listen("beanstalk", "localhost", 11300)),
        ("nsq://localhost", Listen("nsq", "localhost", 4150)),
        ("nsq-http://[::1]", Listen("nsq-http", "::1", 4151)),
        ("nsq://:4150", Listen("nsq", "", 4150)),
        ("nsq://", None),
        ("nsq-http://unix:/run/mq.sock", Listen("nsq-http", "", 0, path="/run/mq.sock")),
        ("beanstalk://unix:relative", None),
        ("beanstalk://unix:/" + "x" * 107, None),
        ("beanstalk://systemd", Listen("beanstalk", "", 0, inherited="")),
        ("beanstalk://systemd:jobs", Listen("beanstalk", "", 0, inherited="jobs")),
        ("BEANSTALK://queue.example.org:65535/", Listen("beanstalk", "queue.example.org", 65535)),
    ],
)
def test_addresses(text: str, listen: Listen | None) -> None:
    if listen is None:
        with pytest.raises(OptionsError):
            parse_listen(text)
    else:
        assert parse_listen(text) == listen


def test_an_address_is_shown_as_it_is_given() -> None:
    for text in ("beanstalk://127.0.0.1:11300", "beanstalk://[::1]:11300"):
        assert str(parse_listen(text)) == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "--listen ftp://h:1",
            '--listen: "ftp" is not a protocol of this version (it has: beanstalk, nsq, nsq-http, nats, ',
        ),
        ("--listen h:1", '--listen: "h:1" is not SCHEME://HOST:PORT (IPv6: SCHEME://[ADDRESS]:PORT)'),
        ("--listen nsq://127.0.0.1:5?both", "?both stands behind 0.0.0.0 or [::], not behind 127.0.0.1:5"),
        ("--listen nsq://unix:/s?both", "?both stands behind 0.0.0.0 or [::], not behind unix:/s"),
        ("--listen beanstalk://::1:5", '"beanstalk://::1:5" is not SCHEME://HOST:PORT'),
        ("--listen beanstalk://h:65536", 'port 65536 of "beanstalk://h:65536" is not between 0 and 65535'),
        ("--listen beanstalk://h:7 --listen beanstalk://h:7", "--listen: h port 7 is given twice"),
        ("--listen beanstalk://h:0 " * 17, "--listen: 17 addresses, at most 16 are possible"),
        ("--workers 0", "--workers: 0 is not between 1 and 64"),
        ("--workers 65", "--workers: 65 is not between 1 and 64"),
        ("--workers -1", "--workers: -1 is not between 1 and 64"),
        ("--workers two", '--workers: "two" is not a whole number'),
        ("--workers 1.5", '--workers: "1.5" is not a whole number'),
        ("--workers 99999999999999999999999", "is not between 1 and 64"),
        ("--acceptors 64", "--acceptors: 64 is not between 1 and 63"),
        ("--shards 4097", "--shards: 4097 is not between 1 and 4096"),
        ("--sync often", '--sync: "often" is not one of always, interval, never'),
        ("--log-level loud", '--log-level: "loud" is not one of debug, info, warning, error'),
        ("--data-dir d --memory", "--data-dir and --memory: only one of them is possible"),
        ("--set x", '--set: "x" is not SECTION.OPTION=VALUE'),
        ("--set beanstalk.max-job-size", "is not SECTION.OPTION=VALUE"),
        ("--set kafka.x=1", '--set: "kafka" is not a section (there are: beanstalk, nsq, nats, '),
        ("--set beanstalk.z=1", '--set: "z" is not an option of [beanstalk] (there are: max-job-size, ids)'),
        ("--set beanstalk.max-job-size=big", '--set: beanstalk.max-job-size: "big" is not a whole number'),
        ("--set beanstalk.max-job-size=", '--set: beanstalk.max-job-size: "" is not a whole number'),
        ("--set beanstalk.max-job-size=-1", "--set: beanstalk.max-job-size: -1 is not between 0 and 1073741824"),
        ("--set log.sync-interval=0", "--set: log.sync-interval: 0 is not between 1 and 60000"),
        ("--set broker.ring-bytes=65537", "--set: broker.ring-bytes: 65537 is not a power of two"),
        ("--set nsq.msg-timeout=60", 'nsq.msg-timeout: "60" is not a duration such as "250ms" or "1m30s"'),
        ("--set nsq.msg-timeout=-1s", "nsq.msg-timeout: -1s is not between 1ms and 8760h"),
        ("--set nsq.msg-timeout=8761h", "nsq.msg-timeout: 8761h is not between 1ms and 8760h"),
        ("--set nsq.deflate=yes", 'nsq.deflate: "yes" is not true or false'),
        ("--set nsq.tls-required=maybe", 'nsq.tls-required: "maybe" is not one of false, true, tcp-https'),
        ("--set nsq.tls-min-version=ssl3.0", '"ssl3.0" is not one of tls1.0, tls1.1, tls1.2, tls1.3'),
        ("--set nsq.tls-client-auth-policy=ask", '"ask" is not one of require, require-verify'),
        ("--set nsq.max-deflate-level=10", "nsq.max-deflate-level: 10 is not between 1 and 9"),
        ("--set nsq.node-id=1024", "nsq.node-id: 1024 is not between 0 and 1023"),
        ("--set nsq.lookupd-tcp-address=lookup", 'nsq.lookupd-tcp-address: "lookup" is not HOST:PORT'),
        ("--set nsq.lookupd-tcp-address=::1:4160", '"::1:4160" is not HOST:PORT'),
        ("--set nsq.lookupd-tcp-address=h:0", '"h:0" is not HOST:PORT'),
        ("--set nsq.lookupd-tcp-address=h:65536", '"h:65536" is not HOST:PORT'),
        ("--set nsq.lookupd-tcp-address=http://h:4160", '"http://h:4160" is not HOST:PORT'),
        ("--set nsq.auth-http-address=ftp://h:1", '"ftp://h:1" is not HOST:PORT or a URL'),
        ("--set nsq.broadcast-address=http://h", 'nsq.broadcast-address: "http://h" is not a host'),
        ("--set nsq.lookupd-tcp-address=h:1 " * 65, "65 of them, at most 64 are possible"),
        ("--set nsq.tls-cert=/nowhere/cert", "nsq.tls-cert: cannot read /nowhere/cert: No such file or directory"),
        ("--set nsq.tls-root-ca-file=/", "nsq.tls-root-ca-file: cannot read /: Is a directory"),
        ("--set nsq.tls-required=true", 'nsq.tls-required is "true", which needs nsq.tls-cert and nsq.tls-key'),
        ("--set nsq.tls-client-auth-policy=require", "which needs nsq.tls-cert and nsq.tls-key"),
        ("--set nsq.data-path=d", '--set: "data-path" is not an option of [nsq]: use --data-dir'),
        ("--set nsq.mem-queue-size=0", '"mem-queue-size" is not an option of [nsq]: no message is in memory only'),
        ("--set nsq.sync_every=1", '"sync_every" is not an option of [nsq]: use --sync and log.sync-interval'),
        ("--set nsq.msg_timeout=1s", '--set: "msg_timeout" is written "msg-timeout" here'),
        ("--set nsq.nothing=1", '"nothing" is not an option of [nsq] (mq-shards --help shows them)'),
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
        ("[kafka]\nx = 1", "[kafka] is not a section (there are: beanstalk, nsq, nats, "),
        ("[beanstalk]\nmax = 1", '"max" is not an option of [beanstalk] (there are: max-job-size, ids)'),
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
        ('listen = ["kafka://h:1"]', 'listen: "kafka" is not a protocol of this version'),
        ('[beanstalk]\nmax-job-size = "1"', 'beanstalk.max-job-size: "1" is not a whole number'),
        ("[nsq]\nmsg-timeout = 60", "nsq.msg-timeout: 60 is not a duration such as"),
        ("[nsq]\ndeflate = 1", "nsq.deflate: 1 is not true or false"),
        ('[nsq]\ndeflate = "true"', 'nsq.deflate: "true" is not true or false'),
        ("[nsq]\ntls-required = 1", "nsq.tls-required: 1 is not one of false, true, tcp-https"),
        ("[nsq]\nstatsd-prefix = 1", "nsq.statsd-prefix: 1 is not a text"),
        ('[nsq]\nstatsd-prefix = "a\\nb"', '"a\\nb" is not a text'),
        ('[nsq]\nlookupd-tcp-address = "h:1"', 'nsq.lookupd-tcp-address: "h:1" is not a list of HOST:PORT'),
        ("[nsq]\nlookupd-tcp-address = [1]", "nsq.lookupd-tcp-address: 1 is not HOST:PORT"),
        ("[nsq]\ntls-cert = true", "nsq.tls-cert: true is not a path"),
        ('[nsq]\nnsqlookupd_tcp_addresses = ["h:1"]', "is not an option of [nsq]: use lookupd-tcp-address"),
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


def test_a_file_of_an_editor_that_marks_utf_8_is_read(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbfworkers = 3\r\n")
    assert parse(["--config", str(config)]).workers == 3


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


def test_every_kind_of_nsq_option_on_the_command_line() -> None:
    section = nsq(
        "msg-timeout=1m30s", "max-req-timeout=0", "deflate=false", "snappy=T", "max-rdy-count=7",
        "tls-min-version=TLS1.2", "lookupd-tcp-address=lookup-1:4160", "lookupd-tcp-address=[::1]:4161",
        "auth-http-address=h:1", "auth-http-address=https://auth.example.org/path?x=y", "broadcast-address=2001:db8::1",
        "statsd-prefix=", "statsd-address=127.0.0.1:8125",
    )  # fmt: skip
    assert section == NSQD_DEFAULTS | {
        "msg-timeout": 90 * SECOND,
        "max-req-timeout": 0,
        "deflate": False,
        "snappy": True,
        "max-rdy-count": 7,
        "tls-min-version": "tls1.2",
        "lookupd-tcp-address": ["lookup-1:4160", "[::1]:4161"],
        "auth-http-address": ["h:1", "https://auth.example.org/path?x=y"],
        "broadcast-address": "2001:db8::1",
        "statsd-prefix": "",
        "statsd-address": "127.0.0.1:8125",
    }


def test_every_kind_of_nsq_option_in_a_file(config: Path) -> None:
    config.write_text(
        '[nsq]\nmsg-timeout = "250ms"\ndeflate = false\nmax-rdy-count = 7\ntls-required = false\ntls-min-version = ""\n'
        'statsd-prefix = "7"\nlookupd-tcp-address = ["h:1", "h:2"]\nauth-http-address = []\ntls-cert = ""\n'
    )
    assert parse(["--config", str(config)]).settings["nsq"] == NSQD_DEFAULTS | {
        "msg-timeout": 250 * MS,
        "deflate": False,
        "max-rdy-count": 7,
        "statsd-prefix": "7",
        "lookupd-tcp-address": ["h:1", "h:2"],
    }


def test_a_list_on_the_command_line_takes_the_place_of_the_one_in_the_file(config: Path) -> None:
    config.write_text('[nsq]\nlookupd-tcp-address = ["h:1", "h:2"]\n')
    arguments = ["--set", "nsq.lookupd-tcp-address=h:3", "--set", "nsq.lookupd-tcp-address=h:4"]
    assert parse(["--config", str(config), *arguments]).settings["nsq"]["lookupd-tcp-address"] == ["h:3", "h:4"]
    assert parse([]).settings["nsq"]["lookupd-tcp-address"] == []  # the defaults are not what was added to


def test_a_list_on_the_command_line_may_stand_as_in_a_file() -> None:
    def topics(*said: str) -> object:
        return parse([word for one in said for word in ("--set", f"nats.topics={one}")]).settings["nats"]["topics"]

    assert topics('["a", "w.>"]', "c") == topics("['a','w.>','c']") == ["a", "w.>", "c"]
    assert topics("[]") == [] and topics("[a]") == ["[a]"]
    with pytest.raises(OptionsError, match="1 is not a subject"):
        topics("[1]")


def test_too_large_an_output_buffer_is_lowered_with_a_warning() -> None:
    options = parse(["--set", "nsq.max-output-buffer-size=2000000"])
    assert options.settings["nsq"]["max-output-buffer-size"] == 1 << 20
    assert options.warnings == ("--set: nsq.max-output-buffer-size: 2000000 is too large, 1048576 is used",)


def test_who_is_to_be_told_of_nothing_is_warned_about() -> None:
    told = ["--set", "nsq.lookupd-tcp-address=h:1"]
    assert parse(["--listen", "beanstalk://h:1", *told]).warnings == (
        "nsq.lookupd-tcp-address has no effect: nothing listens on nsq://",
    )
    assert not parse(["--listen", "nsq://h:1", *told]).warnings
    assert not parse(["--listen", "beanstalk://h:1"]).warnings


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("60s", 60 * SECOND),
        ("1m30s", 90 * SECOND),
        ("1h0.5m", HOUR + 30 * SECOND),
        ("1.5s", 1500 * MS),
        (".5s", 500 * MS),
        ("1.s", SECOND),
        ("250ms", 250 * MS),
        ("1us2ns", 1002),
        ("1µs", 1000),
        ("1μs", 1000),
        ("0.1s", 100 * MS),
        ("+1s", SECOND),
        ("-1s", -SECOND),
        ("1.9ns", 1),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "60", "1", "s", ".s", "1 s", "1d", "1m 30s", "--1s", "1S", "1e3s", "1m30", "-"])
def test_what_go_does_not_read_as_a_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(0, 1 << 62))
def test_a_duration_is_shown_as_it_is_read(ns: int) -> None:
    assert parse_duration(duration_text(ns)) == ns


def test_every_default_is_within_its_own_limits() -> None:
    for table in SECTIONS.values():
        for name, kind in table.items():
            if name == "node-id":
                continue  # what stands for this host's own is nobody's to set
            warnings: list[str] = []
            value = duration_text(kind.default) if isinstance(kind, Duration) else kind.default
            assert kind.parse(name, value, warnings) == kind.default
            assert not warnings


def test_the_node_id_is_the_one_that_nsqd_gives_itself() -> None:
    assert node_id("broker-7") == 85  # what nsqd 1.3.0 logs as its ID on a host called so


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return make_certificate(tmp_path, "one")


def make_certificate(directory: Path, name: str, passphrase: bytes | None = None) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    cert_file, key_file = directory / f"{name}.cert", directory / f"{name}.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    return cert_file, key_file


@pytest.mark.parametrize(
    ("text", "required"),
    [("true", "true"), ("1", "true"), ("T", "true"), ("TCP-HTTPS", "tcp-https"), ("0", "false"), ("False", "false")],
)
def test_tls_required_is_read_as_nsqd_reads_it(certificate: tuple[Path, Path], text: str, required: str) -> None:
    cert, key = certificate
    assert nsq(f"tls-cert={cert}", f"tls-key={key}", f"tls-required={text}")["tls-required"] == required


def test_a_policy_for_client_certificates_implies_tls(certificate: tuple[Path, Path], config: Path) -> None:
    cert, key = certificate
    files = [f"tls-cert={cert}", f"tls-key={key}", f"tls-root-ca-file={cert}"]
    assert nsq(*files)["tls-required"] == "false"
    assert nsq(*files, "tls-client-auth-policy=require-verify")["tls-required"] == "true"
    with_http = nsq(*files, "tls-client-auth-policy=require-verify", "tls-required=tcp-https")
    assert with_http["tls-required"] == "tcp-https"
    config.write_text(f'[nsq]\ntls-cert = "{cert}"\ntls-key = "{key}"\ntls-required = true\n')
    assert parse(["--config", str(config)]).settings["nsq"]["tls-required"] == "true"


def test_certificates_that_cannot_be_used_are_named(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    other_cert, other_key = make_certificate(tmp_path, "other")
    locked_cert, locked_key = make_certificate(tmp_path, "locked", b"secret")
    (tmp_path / "empty").touch()

    def said(**files: Path) -> str:
        return complaint(*(word for name, file in files.items() for word in ("--set", f"nsq.tls-{name}={file}")))

    assert said(cert=cert) == "nsq.tls-cert is set, so nsq.tls-key must be too"
    assert said(key=key) == "nsq.tls-key is set, so nsq.tls-cert must be too"
    assert f"nsq.tls-cert {cert}, nsq.tls-key {other_key}: " in said(cert=cert, key=other_key)
    assert f"nsq.tls-cert {key}, nsq.tls-key {key}: " in said(cert=key, key=key)
    assert "nsq.tls-cert " in said(cert=locked_cert, key=locked_key)  # and nobody is asked for the passphrase
    assert "nsq.tls-root-ca-file" in said(**{"root-ca-file": tmp_path / "empty"})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other_cert, other_key)  # the parts themselves are good


@pytest.mark.parametrize(("given", "other"), [("cert", "key"), ("key", "cert")])
def test_a_certificate_for_all_has_a_key(tmp_path: Path, given: str, other: str) -> None:
    (tmp_path / "file").touch()
    assert complaint("--set", f"tls.{given}={tmp_path / 'file'}") == f"tls.{given} is set, so tls.{other} must be too"
