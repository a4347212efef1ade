"""The table of docs/security.md: each operation that it names, by each protocol, tried by users who have one right to
one topic, for that topic and for another. What is in the table has to be tried here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Final

import nats
import pulsar
import pytest
from mq_shards.acceptor.access.rights import RIGHTS

from tests.access.broker import BOSS, HOST, TIMEOUT_S, Guarded, Person, guarded, wire_auth
from tests.nsq import frames
from tests.nsq.wire import Wire
from tests.reader.broker import section
from tests.servers import ROOT

MINE, OTHER = "orders", "mail"
# Each has one right and no other, but for the one who has none.
PEOPLE: Final = (*(Person(f"only-{right}", {right: [MINE]}) for right in RIGHTS), Person("nothing"))
Can = Callable[[Guarded, Person, str], bool]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("operations"), (*PEOPLE, BOSS)) as one:
        for topic in (MINE, OTHER):
            assert one.act(BOSS, do="make", topic=topic, channel="c") == 200
        yield one


# --- beanstalkd -------------------------------------------------------------------------------------------------------


class Lines:
    """A beanstalkd connection as this user."""

    def __init__(self, broker: Guarded, person: Person) -> None:
        self._socket = socket.create_connection((HOST, broker.ports[f"beanstalk {person.name}"]), TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, line: str) -> str:
        self._socket.sendall(line.encode() + b"\r\n")
        answer = self._file.readline().decode().strip()
        if answer.startswith(("FOUND", "RESERVED")):
            self._file.read(int(answer.split()[-1]) + 2)
        return answer


def job_of(broker: Guarded, topic: str) -> int:
    with Lines(broker, BOSS) as boss:
        boss.ask(f"use {topic}")
        return int(boss.ask("put 0 0 60 1\r\nx").split()[1])


def command(*lines: str) -> Can:
    """The last of these lines is refused, or not; {topic} and {job}, one of that tube, are put in."""

    def can(broker: Guarded, person: Person, topic: str) -> bool:
        job = job_of(broker, topic)
        with Lines(broker, person) as wire:
            for line in lines:
                answer = wire.ask(line.format(topic=topic, job=job))
        assert answer, "the connection ended"
        return answer != "UNKNOWN_COMMAND"

    return can


# --- NSQ --------------------------------------------------------------------------------------------------------------


def nsq(make: Callable[[str], bytes]) -> Can:
    def can(broker: Guarded, person: Person, topic: str) -> bool:
        with Wire(broker.ports["nsq"]) as wire:
            wire.identify()
            assert b"permission_count" in wire.ask(wire_auth(person.token)).data
            answer = wire.ask(make(topic))
        assert answer == frames.OK or answer.data.startswith(b"E_UNAUTHORIZED"), answer
        return answer == frames.OK

    return can


def http(scheme: str, method: str, target: str, body: bytes | Callable[[str], bytes] = b"", *good: int) -> Can:
    """Refused with 401 or 403, or not. {topic} and {person} are put in."""

    def can(broker: Guarded, person: Person, topic: str) -> bool:
        data = body(topic) if callable(body) else body
        filled = target.format(topic=topic, person=person.name)
        headers = {"Content-Type": "application/json"}
        status, said = broker.request(method, filled, data, scheme=scheme, token=person.token, headers=headers)
        assert status in (200, 204, 401, 403, 404, 409, 412, *good), (status, said)
        return status not in (401, 403)

    return can


def act(**said: object) -> Can:
    return http("http", "POST", "/v1/act", lambda topic: json.dumps({"topic": topic, **said}).encode())


# --- NATS and Pulsar --------------------------------------------------------------------------------------------------


def by_nats(what: str) -> Can:
    def can(broker: Guarded, person: Person, topic: str) -> bool:
        refused: list[Exception] = []

        async def told(error: Exception) -> None:
            refused.append(error)

        async def attempt() -> None:
            url = f"nats://{HOST}:{broker.ports['nats']}"
            client = await nats.connect(
                url, error_cb=told, max_reconnect_attempts=0, connect_timeout=TIMEOUT_S, token=person.token
            )
            try:
                if what == "PUB":
                    await client.publish(topic, b"one")
                elif what == "HPUB":
                    await client.publish(topic, b"one", headers={"a": "b"})
                else:
                    await client.subscribe(topic, queue="workers" if what == "queue groups" else "")
                for _ in range(2):  # the first PONG may be an answer to a PING of the client's own
                    await client.flush(TIMEOUT_S)
            finally:
                await client.close()

        asyncio.run(attempt())
        return not refused

    return can


def by_pulsar(use: Callable[[pulsar.Client, str], object]) -> Can:
    def can(broker: Guarded, person: Person, topic: str) -> bool:
        client = pulsar.Client(
            f"pulsar://{HOST}:{broker.ports['pulsar']}", operation_timeout_seconds=TIMEOUT_S,
            authentication=pulsar.AuthenticationToken(person.token),
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
        )  # fmt: skip
        try:
            use(client, topic)
        except (pulsar.AuthorizationError, pulsar.AuthenticationError):
            return False
        finally:
            client.close()
        return True

    return can


TOPIC: Final = "/admin/v2/persistent/public/default/{topic}"


def writer(broker: Guarded, person: Person, topic: str) -> bool:
    """A batch of Spark's: staged, and then published."""
    name = f"{person.name}-{topic}"
    data = section(topic, b"one")
    staged, _ = broker.request("POST", f"/v1/staged/{name}?at=0", data, token=person.token)
    said = json.dumps({"batch": 1, "staged": [{"name": name, "bytes": len(data)}]}).encode()
    status, found = broker.request("PUT", f"/v1/writers/{name}", said, token=person.token)
    if status == 403 or staged == 403:
        broker.request("DELETE", f"/v1/staged/{name}", token=person.token)
        return False
    assert (status, found["state"]) == (200, "published"), found
    return True


# By protocol and right, as the table has it: each operation, and how it is tried.
OPERATIONS: Final[dict[tuple[str, str], dict[str, Can]]] = {
    ("beanstalkd", "publish"): {"put": command("use {topic}", "put 0 0 60 1\r\nx")},
    ("beanstalkd", "consume"): {
        "watch": command("watch {topic}"),
        "reserve": command("watch {topic}", "ignore default", "reserve-with-timeout 0"),
        "reserve-job": command("reserve-job {job}"),
    },
    ("beanstalkd", "read"): {
        "peek": command("peek {job}"),
        "peek-ready": command("use {topic}", "peek-ready"),
        "peek-delayed": command("use {topic}", "peek-delayed"),
        "peek-buried": command("use {topic}", "peek-buried"),
    },
    ("beanstalkd", "manage"): {
        "kick": command("use {topic}", "kick 1"),
        "kick-job": command("kick-job {job}"),
        "pause-tube": command("pause-tube {topic} 0"),
    },
    ("NSQ", "publish"): {
        "PUB": nsq(lambda topic: frames.pub(topic, b"x")),
        "MPUB": nsq(lambda topic: frames.mpub(topic, [b"x", b"y"])),
        "DPUB": nsq(lambda topic: frames.dpub(topic, 10, b"x")),
        "/pub": http("nsq-http", "POST", "/pub?topic={topic}", b"x"),
        "/mpub": http("nsq-http", "POST", "/mpub?topic={topic}", b"x\ny"),
    },
    ("NSQ", "consume"): {"SUB": nsq(lambda topic: frames.sub(topic, "c"))},
    ("NSQ", "manage"): {
        f"/{path}": http("nsq-http", "POST", f"/{path}?topic={{topic}}{of}")
        for what, of in (("topic", ""), ("channel", "&channel=made"))
        for path in (f"{what}/{do}" for do in ("create", "empty", "pause", "unpause"))
    },
    ("NATS", "publish"): {"PUB": by_nats("PUB"), "HPUB": by_nats("HPUB")},
    ("NATS", "consume"): {"SUB": by_nats("SUB"), "queue groups": by_nats("queue groups")},
    ("Pulsar", "publish"): {"producers": by_pulsar(lambda client, topic: client.create_producer(topic).send(b"one"))},
    ("Pulsar", "consume"): {
        "consumers": by_pulsar(lambda client, topic: client.subscribe(topic, "s")),
        "readers": by_pulsar(lambda client, topic: client.create_reader(topic, pulsar.MessageId.latest)),
        "REST: subscriptions": http("pulsar-http", "PUT", f"{TOPIC}/subscription/made-{{person}}"),
    },
    ("Pulsar", "read"): {"REST: peek": http("pulsar-http", "GET", f"{TOPIC}/subscription/c/position/1")},
    ("Pulsar", "manage"): {
        "REST: unload": http("pulsar-http", "PUT", f"{TOPIC}/unload"),
        "REST: skip": http("pulsar-http", "POST", f"{TOPIC}/subscription/c/skip/0"),
        "REST: reset": http("pulsar-http", "POST", f"{TOPIC}/subscription/c/resetcursor/0"),
        "REST: expire": http("pulsar-http", "POST", f"{TOPIC}/subscription/c/expireMessages/100000"),
    },
    ("http://", "publish"): {
        "publishing": http("http", "POST", "/v1/publish", lambda topic: section(topic, b"one")),
        "the console's publish": act(do="publish", body="x"),
        "writers of Spark": writer,
    },
    ("http://", "read"): {
        "peek": http("http", "GET", "/v1/peek?topic={topic}"),
        "tail": http("http", "GET", "/v1/records?topic={topic}&from=0"),
        "Spark": http("http", "GET", "/v1/offsets?topic={topic}&timestamp_ns=0"),
    },
    ("http://", "manage"): {
        "make": act(do="make", channel="made"),
        "pause": act(do="pause", channel="c"),
        "unpause": act(do="unpause", channel="c"),
        "empty": act(do="empty", channel="c"),
        "rewind": act(do="rewind", channel="c", seq=0),
        "kick": act(do="kick"),
        "pause-tube": act(do="pause-tube", seconds=0),
    },
}  # fmt: skip


@pytest.mark.parametrize(("protocol", "right"), OPERATIONS)
def test_an_operation_wants_its_right_to_its_topic_and_no_other(broker: Guarded, protocol: str, right: str) -> None:
    wrong = []
    for operation, can in OPERATIONS[protocol, right].items():
        for person in PEOPLE:
            for topic in (MINE, OTHER):
                found = can(broker, person, topic)
                if found != (topic in person.rights.get(right, ())):
                    wrong.append(f"{person.name} {'may' if found else 'may not'} {operation} {topic}")
    assert not wrong


def test_what_takes_a_topic_away_wants_the_right_to_manage_it(broker: Guarded) -> None:
    for take_away in (
        act(do="delete"), http("nsq-http", "POST", "/topic/delete?topic={topic}"),
        http("http", "DELETE", "/v1/topics/{topic}"), http("pulsar-http", "DELETE", TOPIC),
    ):  # fmt: skip
        for person in PEOPLE:
            if "manage" not in person.rights:
                assert not take_away(broker, person, MINE), person.name
            assert not take_away(broker, person, OTHER), person.name


def table() -> dict[tuple[str, str], str]:
    """What the page has in a cell, by column and right."""
    lines = (ROOT / "docs/security.md").read_text().splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("| right |"))
    heads = cells(lines[begin])[1:]
    found = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        right, *rest = cells(line)
        found.update({(head, right): cell for head, cell in zip(heads, rest, strict=True) if cell})
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_names_what_is_tried_here_and_nothing_else() -> None:
    page = table()
    assert set(page) == set(OPERATIONS)
    for place, cell in page.items():
        for named in re.findall(r"`([^`]+)`|\b([A-Z]{3,})\b", cell):
            operation = "".join(named).removesuffix("/...")
            tried = [one for one in OPERATIONS[place] if one.startswith(operation)]
            assert tried or operation == "REST", (place, operation)


def test_every_listener_that_wants_a_login_refuses_who_has_none(broker: Guarded) -> None:
    with Wire(broker.ports["nsq"]) as wire:
        wire.identify()
        wire.fails(frames.sub(MINE, "c"), "E_AUTH_FIRST AUTH required before SUB")

    async def attempt() -> None:
        with contextlib.suppress(Exception):
            client = await nats.connect(f"nats://{HOST}:{broker.ports['nats']}", allow_reconnect=False,
                                        connect_timeout=TIMEOUT_S)  # fmt: skip
            await client.close()
            pytest.fail("nobody was let in")

    asyncio.run(attempt())
    nobody = Person("", {})
    for (protocol, _), operations in OPERATIONS.items():
        if protocol == "http://":
            for operation, can in operations.items():
                if operation != "writers of Spark":
                    assert not can(broker, _without_token(nobody), MINE), operation


def _without_token(person: Person) -> Person:
    class Nobody(Person):
        @property
        def token(self) -> str:
            return ""

    return Nobody(person.name)
