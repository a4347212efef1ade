"""Bound topics in a cluster: what is published at any server of it is kept, and servers may share that."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.nats.clusters import ACCEPTORS, NEW_REAL, OLD_REAL, OURS, OURS_3, Member, meshed, mixtures, started
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

QUEUE = "nats.topics-queue=keepers"


class Keeper(Member):
    """One of ours, whose topics can be looked into."""

    def __init__(self, kind: str, directory: Path, routes: Sequence[str], settings: Sequence[str]) -> None:
        extra = ("nats.topics=kept.>", *settings)
        super().__init__(kind, directory, routes, extra=extra)
        self.tubes = free_port()
        data = directory / f"data-{self.port}"
        listen = ("--listen", f"beanstalk://127.0.0.1:{self.tubes}")
        self.options = ("--data-dir", str(data), *listen)

    def kept(self, topic: str) -> list[bytes]:
        """All messages, which are there for another look."""
        found = []
        with socket.create_connection(("127.0.0.1", self.tubes), timeout=60) as client:
            file = client.makefile("rwb")
            file.write(b"watch %s\r\nignore default\r\n" % topic.encode())
            while True:
                file.write(b"reserve-with-timeout 0\r\n")
                file.flush()
                while (said := file.readline()).startswith(b"WATCHING"):
                    pass
                if not said.startswith(b"RESERVED"):
                    return found
                size = int(said.split()[2])
                found.append(file.read(size))
                file.readline()


@contextlib.contextmanager
def cluster(kinds: Sequence[str], settings: Sequence[str] = ()) -> Iterator[list[Member]]:
    def make(kind: str, directory: Path, before: list[Member]) -> Member:
        routes = [member.route_url for member in before]
        return Keeper(kind, directory, routes, settings) if kind in ACCEPTORS else Member(kind, directory, routes)

    with started([partial(make, kind) for kind in kinds]) as members:
        meshed(members)
        yield members


def keepers(members: Sequence[Member]) -> list[Keeper]:
    return [member for member in members if isinstance(member, Keeper)]


def acks(wire: Wire, count: int) -> list[dict[str, object]]:
    """What was said of messages."""
    found: list[bytes] = []

    def all_there() -> bool:
        nonlocal found
        wire.barrier()
        found = re.findall(rb"MSG \S+ 9 \d+\r\n([^\r]*)\r\n", wire.heard.data)
        return len(found) >= count

    wait_until(all_there, f"{count} messages are confirmed: {wire.heard.data[-300:]!r}")
    return [json.loads(answer) for answer in found]


def ask_to_keep(wire: Wire, topic: bytes, messages: Sequence[bytes]) -> None:
    said = (b"PUB %s told.%d %d\r\n%s\r\n" % (topic, n, len(body), body) for n, body in enumerate(messages))
    wire.send(b"SUB told.* 9\r\n" + b"".join(said))


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS, OURS_3), (OURS, OLD_REAL, OURS)))
def test_servers_that_share_keep_each_message_once_wherever_it_is_published(kinds: tuple[str, ...]) -> None:
    with cluster(kinds, [QUEUE]) as members:
        listeners = [member.client(b"SUB kept.> 1\r\n") for member in members]
        meshed(members)
        said = []
        for number, member in enumerate(members):
            mine = [b"%d-%d" % (number, n) for n in range(200)]
            wire = member.client()
            ask_to_keep(wire, b"kept.a", mine)
            answers = acks(wire, len(mine))
            assert len(answers) == len(mine) and all(answer["stream"] == "kept.a" for answer in answers)
            assert not any("error" in answer for answer in answers)
            said += mine
            wire.close()
        found = [keeper.kept("kept.a") for keeper in keepers(members)]
        assert Counter(body for bodies in found for body in bodies) == Counter(said)
        # What is published at another server is shared, what is published here is kept here.
        real = next(n for n, kind in enumerate(kinds) if kind not in ACCEPTORS)
        for keeper, bodies in zip(keepers(members), found, strict=True):
            prefixes = Counter(body.partition(b"-")[0] for body in bodies)
            assert prefixes[b"%d" % members.index(keeper)] == 200
            assert 40 < prefixes[b"%d" % real] < 160
        for wire in listeners:
            wire.barrier()
            assert len(re.findall(rb"MSG kept\.a 1 ", wire.heard.data)) == len(said)
            wire.close()


def test_servers_that_do_not_share_keep_all() -> None:
    with cluster((OURS, OURS, NEW_REAL)) as members:
        said = [b"%d" % n for n in range(3)]
        for member, body in zip(members, said, strict=True):
            client = member.client(b"PUB kept.all %d\r\n%s\r\n" % (len(body), body))
            client.close()
        for keeper in keepers(members):
            wait_until(lambda keeper=keeper: sorted(keeper.kept("kept.all")) == said, "all are kept")


def test_a_put_is_not_kept_again_by_another_server_that_shares() -> None:
    with cluster((OURS, OURS), [QUEUE]) as members:
        first, second = keepers(members)
        listener = second.client(b"SUB kept.> 1\r\n")
        meshed(members)
        with socket.create_connection(("127.0.0.1", first.tubes), timeout=60) as client:
            client.sendall(b"use kept.put\r\nput 0 0 60 3\r\none\r\n")
            heard = b""
            while b"INSERTED" not in heard:
                heard += client.recv(100)
        wait_until(lambda: (listener.barrier(), b"one\r\n" in listener.heard.data)[1], "it is heard")
        meshed(members)
        assert (first.kept("kept.put"), second.kept("kept.put")) == ([b"one"], [])


def test_the_interest_is_a_subscription_like_others() -> None:
    for settings, told, message in (
        ([], b"RS+ $G kept.>", b"RMSG $G kept.x told 1\r\na\r\n"),
        ([QUEUE], b"RS+ $G kept.> keepers 1", b"RMSG $G kept.x + told keepers 1\r\na\r\n"),
    ):
        with cluster((OURS,), settings) as (member,):
            wire = RouteWire.joined(member.route_port)
            assert [said for said in wire.told if b" $G " in said] == [told]
            client = member.client(b"SUB kept.> 1\r\nSUB kept.> keepers 2\r\n")
            now = [b"RS+ $G kept.>", b"RS+ $G kept.> keepers 2"] if settings else [b"RS+ $G kept.> keepers 1"]
            assert wire.barrier() == now
            client.close()
            wire.barrier()
            wire.send(b"RS+ $G told\r\n" + message + b"RMSG $G kept.x | others 1\r\nb\r\n")
            wait_until(lambda wire=wire: b"RMSG" in b"".join(wire.barrier()), "it is confirmed")
            assert isinstance(member, Keeper)
            # A message that names other groups is for those who stand alone.
            assert sorted(member.kept("kept.x")) == ([b"a"] if settings else [b"a", b"b"])
            wire.close()


def test_nothing_that_was_confirmed_is_lost_when_servers_that_share_are_killed() -> None:
    with cluster((NEW_REAL, OURS, OURS), [QUEUE]) as members:
        real, *ours = members
        wire = real.client(b"SUB told.* 9\r\n")
        numbers = iter(range(1_000_000))

        def publish(rounds: int) -> None:
            """Those that are not confirmed may be kept or not."""
            for _ in range(rounds):
                messages = {n: b"%d" % n for n in (next(numbers) for _ in range(50))}
                wire.send(b"".join(b"PUB kept.k told.%d %d\r\n%s\r\n" % (n, len(b), b) for n, b in messages.items()))
                wire.barrier()

        for victim in ours:
            publish(20)
            victim.stop(signal.SIGKILL)
            publish(20)
            victim.start()
            victim.wait()
            meshed(members)
        publish(5)
        said = re.findall(rb"MSG told\.(\d+) 9 \d+\r\n([^\r]*)\r\n", wire.heard.data)
        confirmed = {number for number, answer in said if "error" not in json.loads(answer)}
        found = Counter(body for keeper in keepers(members) for body in keeper.kept("kept.k"))
        assert len(confirmed) > 1000
        assert confirmed <= set(found)
        assert set(found.values()) == {1}


def test_other_servers_hear_of_subjects_that_are_bound_later_and_of_those_that_are_not_any_more(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[nats]\ntopics = ["a.*", "b"]\n')
    member = Member(OURS, tmp_path, options=("--config", str(config)))
    try:
        member.start()
        member.wait()
        wire = RouteWire.joined(member.route_port)
        assert sorted(said for said in wire.told if b" $G " in said) == [b"RS+ $G a.*", b"RS+ $G b"]
        client = member.client(b"SUB b 1\r\nSUB d 2\r\n")
        assert wire.barrier() == [b"RS+ $G d"]
        for text, changed in (
            ('topics = ["a.*", "c", "d"]', [b"RS+ $G c"]),
            ('topics = ["a.*", "c", "d"]\ntopics-queue = "q"', [
                b"RS+ $G a.* q 1", b"RS+ $G c q 1", b"RS+ $G d q 1", b"RS- $G a.*", b"RS- $G c",
            ]),
            ("", [b"RS- $G a.* q", b"RS- $G c q", b"RS- $G d q"]),
        ):  # fmt: skip
            config.write_text(f"[nats]\n{text}\n")
            assert member.process is not None
            member.process.send_signal(signal.SIGHUP)
            heard: list[bytes] = []
            while len(heard) < len(changed):
                heard += wire.barrier()
                assert not wire.closed, (text, heard, member.said())
            assert sorted(heard) == changed
        client.close()
        wire.close()
    finally:
        member.stop()
