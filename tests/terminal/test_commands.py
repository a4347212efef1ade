"""The terminal's commands against a broker that runs, by each of its protocols."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.nsq.api import channel_stats, post
from tests.nsq.servers import HOST, SHARDS, running
from tests.reader.broker import Broker
from tests.servers import ROOT, free_port, wait_until
from tests.terminal.commands import MQ, Started, done, objects, on_port, run, started

At = dict[str, str]
ODD = b"\x1b[31mred\x07\xff"


def line_of(process: Started) -> bytes:
    """Its next, or what it complains of."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.readline() or process.stderr.read()


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [message.body for message in broker.read_all(topic)]


@pytest.mark.parametrize("scheme", ["http", "nsq", "nsq-http", "beanstalk", "pulsar", "nats"])
def test_what_is_published_by_any_protocol_is_there(broker: Broker, at: At, scheme: str) -> None:
    topic = f"bound.{scheme}"
    done("publish", topic, "one", at[scheme], '{"n": 2}')
    empty = b"" if scheme.startswith("nsq") else b"\n"  # NSQ has no empty messages
    done("publish", topic, at[scheme], stdin=b"three\nfour\r\n" + empty + b"six")
    done("publish", topic, "--whole", at[scheme], stdin=b"a\nb\n")
    sent = [b"one", b'{"n": 2}', b"three", b"four\r", b"", b"six", b"a\nb\n"]
    if not empty:
        sent.remove(b"")
    wait_until(lambda: broker.topic(topic).get("records") == len(sent), "all are there")
    found = bodies(broker, topic)
    if scheme == "pulsar":  # whose metadata stands before the body
        found = [body[-len(one) :] if one else b"" for body, one in zip(found, sent, strict=True)]
    assert found == sent


@pytest.mark.parametrize("scheme", ["http", "nsq", "beanstalk", "pulsar"])
def test_what_is_consumed_is_finished_and_no_more_than_asked_for(broker: Broker, at: At, scheme: str) -> None:
    topic = f"taken.{scheme}"
    arguments = ("consume", topic, "-n", "2", "--channel", "c", at[scheme])
    if scheme == "pulsar":  # a new subscription begins with what comes
        process = started(*arguments, "--raw")
        wait_until(lambda: channel_stats(broker.server, topic, "c") is not None, "it has subscribed")
        done("publish", topic, "1", "2", "3", at[scheme])
        assert [line_of(process), line_of(process)] == [b"1\n", b"2\n"]
        assert process.wait(20) == 0
    else:
        done("publish", topic, "1", "2", "3", at[scheme])
        assert done(*arguments, "--raw") == b"1\n2\n"
    if scheme == "beanstalk":
        assert [row["backlog"] for row in objects("topics", topic, at["beanstalk"])] == [1]
        return

    def left() -> tuple[int, int]:
        found = channel_stats(broker.server, topic, "c")
        assert found is not None
        return found["depth"], found["in_flight_count"]

    wait_until(lambda: left() == (1, 0), "what was not asked for waits for others")


def test_looking_and_following_take_nothing(broker: Broker, at: At) -> None:
    post(broker.server, "/topic/create?topic=seen")
    post(broker.server, "/channel/create?topic=seen&channel=c")
    broker.publish(*[("seen", b"%d" % n) for n in range(300)])
    assert done("peek", "seen", "-n", "3", "--raw", at["http"]) == b"297\n298\n299\n"
    assert done("peek", "seen", "-n", "2", "--from", "5", "--raw", at["http"]) == b"5\n6\n"
    assert len(objects("peek", "seen", "-n", "300", at["http"])) == 300
    assert done("tail", "seen", "-n", "1", "--raw", at["http"]) == b"299\n"
    assert len(done("tail", "seen", at["http"]).splitlines()) == 10
    tail = started("tail", "seen", "-f", "-n", "2", "--raw", at["http"])
    assert [line_of(tail), line_of(tail)] == [b"298\n", b"299\n"]
    broker.publish(("seen", b"new"))
    assert line_of(tail) == b"new\n"
    tail.send_signal(signal.SIGINT)
    assert tail.wait(10) == 130
    found = channel_stats(broker.server, "seen", "c")
    assert found is not None
    assert (found["depth"], found["in_flight_count"], found["requeue_count"]) == (301, 0, 0)


@pytest.mark.parametrize("scheme", ["nats", "pulsar"])
def test_a_topic_is_followed_by_a_protocol_that_can(broker: Broker, at: At, scheme: str) -> None:
    """Until something is seen it is published again: neither says when it listens."""
    topic = f"bound.follow.{scheme}"
    tail = started("tail", topic, "-f", "--raw", at[scheme])
    seen = threading.Event()

    def publish() -> None:
        while not seen.wait(0.1):
            done("publish", topic, "heard", at[scheme])

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        assert line_of(tail) == b"heard\n"
    finally:
        seen.set()
        thread.join()
        tail.kill()
        tail.wait(10)


def test_a_topic_that_is_not_there_yet_is_waited_for(broker: Broker, at: At) -> None:
    tail = started("tail", "not.yet", "-f", "-n", "9", "--raw", at["http"])
    broker.publish(("not.yet", b"first"), ("not.yet", b"second"))
    assert [line_of(tail), line_of(tail)] == [b"first\n", b"second\n"]
    tail.kill()
    tail.wait(10)


def test_following_goes_on_over_a_gateway_that_dies(broker: Broker, at: At) -> None:
    broker.publish(("gone.on", b"1"))
    tail = started("tail", "gone.on", "-f", "-n", "1", "--raw", at["http"])
    assert line_of(tail) == b"1\n"
    broker.server.replace("mq-gateway")
    broker.publish(("gone.on", b"2"))
    assert line_of(tail) == b"2\n"
    tail.kill()
    tail.wait(10)


def test_beanstalks_own_peeks(broker: Broker, at: At) -> None:
    done("publish", "put.here", "now", at["beanstalk"])
    done("publish", "put.here", "later", "--delay", "100", at["beanstalk"])
    found = [(one["state"], one["text"]) for one in objects("peek", "put.here", at["beanstalk"])]
    assert found == [("ready", "now"), ("delayed", "later")]


def test_a_tube_that_is_not_there_is_said_as_a_topic_is(broker: Broker, at: At) -> None:
    for scheme in ("http", "beanstalk"):
        assert run("peek", "never.put", at[scheme]).stderr == b"mq-shards: there is no topic never.put\n"


@pytest.mark.parametrize("scheme", ["nsq", "beanstalk", "nats"])
def test_a_name_cannot_say_more_than_a_name(broker: Broker, at: At, scheme: str) -> None:
    for name in ("named first", "named\n", ""):
        for arguments in (("publish", name, "x"), ("consume", name, "-n", "1")):
            result = run(*arguments, at[scheme])
            assert (result.returncode, result.stderr) == (1, f"mq-shards: {name!r} is not a topic's name\n".encode())


def test_why_a_broker_hangs_up_is_said(broker: Broker, at: At) -> None:
    result = run("publish", "too.large", "--whole", at["nats"], stdin=bytes(8 << 20))
    assert result.returncode == 1
    assert b"Maximum Payload Violation" in result.stderr or b"reset" in result.stderr


@pytest.mark.parametrize("scheme", ["http", "nsq", "beanstalk", "nsq-http"])
def test_a_delay_is_kept(broker: Broker, at: At, scheme: str) -> None:
    topic = f"delayed.{scheme}"
    done("publish", topic, "x", "--delay", "500", at[scheme])
    assert [one["delay_ms"] for one in objects("peek", topic, at["http"])] == [500_000]


@pytest.mark.parametrize("kept", [True, False], ids=["on-disk", "in-memory"])
def test_tail_goes_on_when_the_broker_is_back(tmp_path: Path, kept: bool) -> None:
    port = free_port()
    where, listen = f"--at=http://{HOST}:{port}", [f"--listen=http://{HOST}:{port}"]
    data = tmp_path / "data" if kept else None
    with running(SHARDS, data_dir=data, arguments=listen) as server:
        wait_until(lambda: run("publish", "back", "one", "two", where).returncode == 0, "it is served", pause=0.1)
        tail = started("tail", "back", "-f", "-n", "1", "--raw", where)
        assert line_of(tail) == b"two\n"
        server.kill()
        assert tail.stderr is not None
        assert tail.stderr.readline().rstrip().endswith(b"; waiting for it")
    with running(SHARDS, data_dir=data, arguments=listen):
        wait_until(lambda: run("publish", "back", "three", where).returncode == 0, "it is served again", pause=0.1)
        assert line_of(tail) == b"three\n"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 130
        assert tail.stderr.read().splitlines()[-1] == f"mq-shards: http://{HOST}:{port} is back".encode()


ANEW = (
    "tail-pulsar", "tail-nats", "consume-http", "consume-nsq", "consume-beanstalk", "consume-pulsar", "consume-nats",
)  # fmt: skip


def test_following_and_consuming_go_on_after_a_restart(tmp_path: Path) -> None:
    ports = {scheme: free_port() for scheme in ("http", "nsq", "beanstalk", "pulsar", "nats")}
    arguments = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in ports.items()]
    of = {name: tuple(name.split("-")) for name in ANEW}
    where = {name: f"--at={of[name][1]}://{HOST}:{ports[of[name][1]]}" for name in ANEW}
    processes: dict[str, Started] = {}

    def publish(name: str, body: str) -> None:
        wait_until(
            lambda: run("publish", f"anew.{name}", body, where[name]).returncode == 0, "it is published", pause=0.1
        )

    def publish_until_shown(name: str, first: bytes, body: str) -> None:
        """Core NATS keeps nothing, and nobody says when its client has subscribed."""
        shown = threading.Event()

        def repeat() -> None:
            while not shown.wait(0.1):
                publish(name, body)

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            line = line_of(processes[name])
            while line == first:
                line = line_of(processes[name])
        finally:
            shown.set()
            thread.join()
        assert line == f"{body}\n".encode()

    with running(SHARDS, data_dir=tmp_path / "data", arguments=arguments) as server:
        for name, (command, scheme) in of.items():
            publish(name, "early")
            more = ("-f",) if command == "tail" else ("--channel", "c")
            processes[name] = started(command, f"anew.{name}", *more, "--raw", where[name])
            if scheme in ("nsq", "beanstalk", "http"):
                assert line_of(processes[name]) == b"early\n"
            else:
                publish_until_shown(name, b"", "1")
        server.kill()
        for process in processes.values():
            assert process.stderr is not None
            assert process.stderr.readline().rstrip().endswith(b"; waiting for it")
    with running(SHARDS, data_dir=tmp_path / "data", arguments=arguments):
        for name, process in processes.items():
            if name.endswith("nats"):
                publish_until_shown(name, b"1\n", "2")
            else:
                publish(name, "2")
                line = line_of(process)
                while line in (b"1\n", b"early\n"):  # not finished, or finished when the broker was killed
                    line = line_of(process)
                assert line == b"2\n", name
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert process.stderr is not None
            assert b" is back" in process.stderr.read().splitlines()[-1], name


def test_topics_are_listed_by_who_can_list_them(broker: Broker, at: At) -> None:
    broker.publish(*[("listed.b", b"x")] * 3, ("listed.a", b"x"))
    wait_until(
        lambda: [row["published"] for row in objects("topics", "listed.", at["http"])] == [1, 3], "sampled", pause=0.1
    )
    for scheme in ("http", "nsq-http", "beanstalk"):
        rows = objects("topics", "LISTED.", at[scheme])
        assert [row["name"] for row in rows] == ["listed.a", "listed.b"], scheme
        if scheme != "beanstalk":  # whose jobs are counted once somebody wants the tube
            assert [row["published"] for row in rows] == [1, 3], scheme
        text = done("topics", "listed.", at[scheme]).decode().splitlines()
        assert text[0].startswith("TOPIC")
        assert len(text) == 3


def test_a_terminal_obeys_nothing_that_a_message_says(broker: Broker, at: At) -> None:
    broker.publish(("odd", ODD), ("odd", b"\x1b]0;title\x07 \xe2\x80\xae"))
    shown = done("peek", "odd", at["http"])
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert "‮" not in shown.decode()
    assert b"0x1b5b33316d72656407ff" in shown
    assert done("peek", "odd", "--raw", "-n", "2", at["http"]).startswith(ODD)


def name_of(line: str) -> str:
    return str(json.loads(line)["name"])


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.long), "utf-8"])
def test_a_terminal_that_lacks_characters_gets_others(broker: Broker, at: At, encoding: str) -> None:
    topic, body = "sch\u00f6n.\u6ce8", "\u00fcn\u00ef \U0001f389"
    locale = {"PYTHONIOENCODING": encoding, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def wrote(*arguments: str) -> str:
        command = [*MQ, *arguments, at["http"]]
        result = subprocess.run(
            command, env={**os.environ, **locale}, capture_output=True, timeout=30, cwd=ROOT, check=False
        )
        assert (result.returncode, result.stderr) == (0, b""), result
        return result.stdout.decode(encoding)

    wrote("publish", topic, body)
    assert body in done("peek", topic, at["http"]).decode()
    assert json.loads(wrote("peek", topic, "-n", "1", "--json"))["text"] == body
    assert (body if encoding == "utf-8" else r"\U0001f389") in wrote("peek", topic)
    wait_until(lambda: topic in map(name_of, wrote("topics", "--json").splitlines()), "it is listed", pause=0.1)
    assert "sch" in wrote("topics")
    assert "PUBLISHED" in wrote("top", "--count", "1")


def test_a_terminal_obeys_nothing_that_a_name_says(broker: Broker, at: At) -> None:
    name = "odd\x1b[31mn\u00e4me"
    done("publish", name, "x", at["pulsar"])
    wait_until(lambda: b"odd" in done("topics", "odd\x1b", at["http"]), "it is listed", pause=0.1)
    shown = done("topics", "odd\x1b", at["http"]).decode()
    assert "odd\\x1b[31mn\u00e4me" in shown
    assert "\x1b" not in shown
    assert done("topics", "named so by nobody", at["http"]).startswith(b"TOPIC  ")
    gone = run("peek", "no\x1b[31mne", at["http"])
    assert gone.stderr == b"mq-shards: there is no topic no\\x1b[31mne\n"


def test_tubes_are_called_as_beanstalkd_calls_them(broker: Broker, at: At) -> None:
    """A client that asks about each tube of the list is refused none of them."""
    broker.publish(("sp ace", b"x"), ("-hyphen", b"x"), ("n\u00e4me2", b"x"))
    done("publish", "esc\x1b[31m", "x", at["pulsar"])
    done("publish", "all+-/;.$_()", "x", at["beanstalk"])
    with socket.create_connection((HOST, broker.server.beanstalk_port)) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"list-tubes\r\n")
        listed = answers.read(int(answers.readline().split()[1]) + 2).splitlines()
        assert listed[:2] == [b"---", b"- default"]
        assert b"- all+-/;.$_()" in listed
        for line in listed[1:]:
            if line:
                sock.sendall(b"stats-tube %s\r\n" % line[2:])
                ok = answers.readline()
                assert ok.startswith(b"OK "), (line, ok)
                answers.read(int(ok.split()[1]) + 2)


def test_a_name_is_text_to_every_protocol(broker: Broker, at: At) -> None:
    refused = run("publish", "n\u00e4me", "x", at["nsq"])
    assert '"n\u00e4me"' in refused.stderr.decode(), refused
    process = started("consume", "n\u00e4me", "-n", "1", "--json", at["nats"])
    talker = at["nats"]
    while process.poll() is None:
        done("publish", "n\u00e4me", "x", talker)
    assert process.stdout is not None
    assert json.loads(process.stdout.read())["topic"] == "n\u00e4me"


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("topics", "--at", "http://127.0.0.1:1"), 1, "no broker at http://127.0.0.1:1: Connection refused"),
        (("publish", "t", "x", "--at", "nsq://127.0.0.1:1"), 1, "no broker at nsq://127.0.0.1:1"),
        (("publish", "t", "x", "--at", "nsq-http://127.0.0.1:1"), 1, "no broker at nsq-http://127.0.0.1:1"),
        (("bench", "--at", "nsq-http://127.0.0.1:1"), 1, "no broker at nsq-http://127.0.0.1:1"),
        (("topics", "--at", "kafka://127.0.0.1:1"), 1, "kafka:// is not spoken here"),
        (("topics", "--at", "http://a b"), 1, "is not SCHEME://HOST:PORT"),
        (("topics", "--at", "http://127.0.0.1:99999"), 1, "is not SCHEME://HOST:PORT"),
        (("peek",), 2, "the following arguments are required: TOPIC"),
        (("peek", "t", "-n", "0"), 2, "whole number above 0"),
        (("tail", "t", "-n", "-1"), 2, "number"),
        (("publish", "t", "x", "--delay", "soon"), 2, "--delay"),
        (("peek", "\udcff"), 2, "invalid UTF-8 value"),
        (("top", "--nonsense"), 2, "unrecognized arguments: --nonsense"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(arguments: tuple[str, ...], status: int, said: str) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (status, b"")
    assert said in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1


def test_what_a_protocol_cannot_do_says_where_to_ask(broker: Broker, at: At, tmp_path: Path) -> None:
    """The usual http:// address of the host is tried; here it is elsewhere."""
    for arguments in (
        ("topics", at["nsq"]), ("tail", "t", "-f", at["nsq"]), ("top", "--count", "1", at["nats"]),
        ("consume", "t", at["nsq-http"]),
    ):  # fmt: skip
        result = run(*arguments, mq=on_port(1))
        assert result.returncode == 1
        assert b"name the broker's http:// address" in result.stderr
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        result = run("peek", "t", f"--at=nsq-http://unix:{tmp_path / 'socket'}")
        assert b"name the broker's http:// address" in result.stderr
    delayed = run("publish", "bound.t", "x", "--delay", "5", at["nats"])
    assert (delayed.returncode, delayed.stderr) == (1, b"mq-shards: nats:// cannot delay a message\n")
    assert b"there is no topic none" in run("peek", "none", at["http"]).stderr


def test_an_address_of_another_protocol_is_said(at: At) -> None:
    other = at["nsq"].replace("nsq", "http")
    assert b"speaks no HTTP" in run("topics", other).stderr


def test_who_reads_no_more_is_no_error(broker: Broker, at: At) -> None:
    broker.publish(*[("piped", b"x" * 1000)] * 500)
    process = started("peek", "piped", "-n", "500", at["http"])
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


@pytest.mark.parametrize("size", [0, 900, 400_000, 1_048_572, 1_048_576])
def test_lines_of_any_size_are_published_over_http(broker: Broker, at: At, size: int) -> None:
    """More of them than one request takes: a megabyte, or one message."""
    lines = [b"%d" % number + b"x" * size for number in range(3 if size > 1000 else 6000)]
    lines = [line[:size] if size > 1_000_000 else line for line in lines]
    topic = f"sized.{size}"
    done("publish", topic, at["http"], stdin=b"".join(line + b"\n" for line in lines))
    assert bodies(broker, topic) == lines


@pytest.mark.parametrize("scheme", ["http", "nats", "pulsar", "nsq"])
def test_who_follows_ends_with_its_reader(broker: Broker, at: At, scheme: str) -> None:
    """Though no message comes that could not be written."""
    process = started(*(("consume",) if scheme == "nsq" else ("tail", "-f")), f"followed-{scheme}", at[scheme])
    assert process.stdout is not None and process.stderr is not None
    numbers = itertools.count()

    def has_begun() -> bool:
        done("publish", f"followed-{scheme}", str(next(numbers)), at["nats" if scheme == "nats" else "http"])
        assert process.stdout is not None
        return bool(select.select([process.stdout], [], [], 0.5)[0])

    wait_until(has_begun, "it follows")
    process.stdout.close()
    assert (process.wait(20), process.stderr.read()) == (0, b"")


def test_output_that_cannot_be_written_is_one_line(broker: Broker, at: At) -> None:
    broker.publish(("unwritten", b"x"), ("unwritten", b"y"))
    for arguments in (("peek", "unwritten"), ("topics",), ("consume", "unwritten", "--channel", "c", "--json")):
        with Path("/dev/full").open("wb") as full:
            command = [*MQ, *arguments, at["http"]]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=30, cwd=ROOT, check=False)
        assert (result.returncode, result.stderr) == (1, b"mq-shards: No space left on device\n")
    found = channel_stats(broker.server, "unwritten", "c")
    assert found is not None
    assert found["depth"] == 2


@pytest.mark.parametrize(
    ("number", "command"), [(0, "publish"), (1, "topics"), (1, "peek"), (2, "peek"), (1, "topics --json")]
)
def test_a_command_that_is_started_without_a_stream_does_without(
    broker: Broker, at: At, number: int, command: str
) -> None:
    broker.publish(("streams", b"x"))
    words = [*MQ, *command.split(), "streams", at["http"]]
    done = subprocess.run(
        words, preexec_fn=lambda: os.close(number), stderr=None if number == 2 else subprocess.PIPE, timeout=30,
        cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr or b"") == (0, b"")


def test_what_was_not_written_is_not_finished(broker: Broker, at: At) -> None:
    """A consumer that is killed while its output is not taken gives the message back."""
    done("publish", "kept", at["nsq"], stdin=b"x" * 200_000 + b"\n" + b"y" * 200_000)
    read, write = os.pipe()
    process = subprocess.Popen([*MQ, "consume", "kept", "--raw", "--channel", "c", at["nsq"]], stdout=write, cwd=ROOT)
    os.close(write)

    def in_flight() -> int:
        found = channel_stats(broker.server, "kept", "c")
        return 0 if found is None else int(found["in_flight_count"])

    wait_until(lambda: in_flight() == 1, "one is taken")
    process.kill()
    process.wait(10)
    os.close(read)
    wait_until(lambda: in_flight() == 0, "it is given back")
    found = channel_stats(broker.server, "kept", "c")
    assert found is not None
    assert found["depth"] == 2
