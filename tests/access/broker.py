"""A broker with users, and what a user can do there by each protocol, with clients that people use."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import greenstalk
import nats
import nats.errors
import pulsar
from mq_shards.acceptor.access.hashes import password_hash, token_hash

from tests import servers
from tests.nsq import frames
from tests.nsq.wire import Wire
from tests.servers import Server, Shape, free_port
from tests.starting import begin

HOST: Final = "127.0.0.1"
SHAPE: Final = Shape("shards-2", "mq-shards", ("--workers", "2", "--acceptors", "2"))
ROUNDS: Final = 4  # of bcrypt: the least
SCHEMES: Final = ("nsq", "nats", "pulsar", "http", "nsq-http", "pulsar-http", "nats-http")
TIMEOUT_S: Final = 30


@dataclass(frozen=True)
class Person:
    name: str
    rights: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return f"mqs_token-of-{self.name}"

    @property
    def password(self) -> str:
        return f"password of {self.name}"

    def toml(self) -> str:
        lines = [f"[users.{self.name}]", f'password = "{kept(self.password)}"']
        lines.append(f'tokens = ["{token_hash(self.token)}"]')
        lines.append(f'certificates = ["{self.name}.example.org"]')
        lines += [f"{right} = {json.dumps(list(patterns))}" for right, patterns in self.rights.items()]
        return "\n".join(lines) + "\n"


BOSS: Final = Person("boss", {right: ["*"] for right in ("publish", "consume", "read", "manage")})
SHOP: Final = Person("shop", {"publish": ["orders", "_INBOX.*"], "consume": ["mail", "_INBOX.*"]})
CLERK: Final = Person("clerk", {"consume": ["orders"], "read": ["orders"], "manage": ["mail"]})
NOBODY: Final = Person("nobody")
PEOPLE: Final = (BOSS, SHOP, CLERK, NOBODY)


@cache
def kept(password: str) -> str:
    """The same each time: another salt is another password."""
    return password_hash(password, ROUNDS)


def write_users(path: Path, people: Sequence[Person] = PEOPLE) -> Path:
    new = path.with_suffix(".new")
    new.write_text("\n".join(person.toml() for person in people))
    new.replace(path)
    return path


@dataclass
class Guarded:
    server: Server
    users: Path
    ports: Mapping[str, int]  # by scheme; of beanstalkd's protocol by user

    def rewrite(self, *people: Person) -> None:
        """And have it read."""
        before = self.server.said().count("options read anew")
        write_users(self.users, people)
        self.server.process.send_signal(signal.SIGHUP)
        servers.wait_until(lambda: self.server.said().count("options read anew") > before, "it has been read")

    # --- http:// ----------------------------------------------------------------------------------------------------

    def request(
        self, method: str, target: str, body: bytes = b"", *, scheme: str = "http", token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        connection = http.client.HTTPConnection(HOST, self.ports[scheme], timeout=TIMEOUT_S)
        given = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, target, body, given)
            with connection.getresponse() as answer:
                data = answer.read()
                try:
                    return answer.status, json.loads(data)
                except ValueError:
                    return answer.status, data
        finally:
            connection.close()

    def act(self, person: Person | None, **said: object) -> int:
        token = "" if person is None else person.token
        headers = {"Content-Type": "application/json"}
        return self.request("POST", "/v1/act", json.dumps(said).encode(), token=token, headers=headers)[0]


@contextlib.contextmanager
def guarded(place: Path, people: Sequence[Person] = PEOPLE, *more: str, memory: bool = False) -> Iterator[Guarded]:
    users = write_users(place / "users.toml", people)
    ports = {scheme: free_port() for scheme in SCHEMES}
    options = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in ports.items()]
    for person in people:
        ports[f"beanstalk {person.name}"] = port = free_port()
        options.append(f"--listen=beanstalk://{HOST}:{port}?user={person.name}")
    options += [f"--users={users}", *more]
    with running(place, options, ports, memory=memory) as server:
        yield Guarded(server, users, ports)


@contextlib.contextmanager
def running(place: Path, options: Sequence[str], ports: Mapping[str, int], *, memory: bool) -> Iterator[Server]:
    command = [*SHAPE.options, *options]
    command += ["--memory"] if memory else [f"--data-dir={place / 'data'}"]
    said = place / "stderr"
    with said.open("wb") as sink:
        process = begin(command, sink)
    server = Server(SHAPE, 0, process, said)
    try:
        servers.wait_until(lambda: "listening on" in server.said() or process.poll() is not None, "it serves", 60)
        assert process.poll() is None, server.said()
        yield server
    finally:
        server.dispose()


# --- what somebody can do ---------------------------------------------------------------------------------------------


def beanstalk_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    with greenstalk.Client((HOST, broker.ports[f"beanstalk {person.name}"])) as client:
        try:
            if action == "publish":
                client.use(topic)
                client.put(b"one")
            elif action == "consume":
                client.watch(topic)
            elif action == "read":
                client.use(topic)
                with contextlib.suppress(greenstalk.NotFoundError):
                    client.peek_ready()
            else:
                client.use(topic)
                client.kick(1)
        except greenstalk.UnknownCommandError:
            return False
        return True


def nsq_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    with Wire(broker.ports["nsq"]) as wire:
        assert wire.identify()["auth_required"] is True
        assert b"permission_count" in wire.ask(wire_auth(person.token)).data
        answer = wire.ask(frames.pub(topic, b"one") if action == "publish" else frames.sub(topic, "c"))
    assert answer == frames.OK or answer.data.startswith(b"E_UNAUTHORIZED"), answer
    return answer == frames.OK


def wire_auth(secret: str) -> bytes:
    return b"AUTH\n" + len(secret).to_bytes(4, "big") + secret.encode()


def nats_can(broker: Guarded, person: Person, action: str, topic: str, **login: str) -> bool:
    refused: list[Exception] = []

    async def told(error: Exception) -> None:
        refused.append(error)

    async def attempt() -> bool:
        said = login or {"user": person.name, "password": person.password}
        url = f"nats://{HOST}:{broker.ports['nats']}"
        client = await nats.connect(url, error_cb=told, max_reconnect_attempts=0, connect_timeout=TIMEOUT_S, **said)  # type: ignore[arg-type]
        try:
            if action == "publish":
                await client.publish(topic, b"one")
            else:
                await client.subscribe(topic)
            for _ in range(2):  # the first PONG may be an answer to a PING of the client's own
                await client.flush(TIMEOUT_S)
        finally:
            await client.close()
        return not refused

    return asyncio.run(attempt())


def nats_request(broker: Guarded, *, asker: Person, answerer: Person, subject: str) -> bytes:
    async def ask() -> bytes:
        url = f"nats://{HOST}:{broker.ports['nats']}"
        one = await nats.connect(url, user=answerer.name, password=answerer.password)
        other = await nats.connect(url, user=asker.name, password=asker.password)
        try:

            async def answer(message: Any) -> None:  # noqa: ANN401
                await message.respond(b"answered")

            await one.subscribe(subject, cb=answer)
            await one.flush(TIMEOUT_S)
            until = asyncio.get_running_loop().time() + TIMEOUT_S
            while True:  # the other acceptor may not have heard of the one who answers
                try:
                    return (await other.request(subject, b"?", timeout=TIMEOUT_S)).data
                except nats.errors.NoRespondersError:
                    assert asyncio.get_running_loop().time() < until
        finally:
            await one.close()
            await other.close()

    return asyncio.run(ask())


def pulsar_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    client = pulsar.Client(
        f"pulsar://{HOST}:{broker.ports['pulsar']}", logger=quiet,
        authentication=pulsar.AuthenticationToken(person.token), operation_timeout_seconds=TIMEOUT_S,
    )  # fmt: skip
    try:
        if action == "publish":
            client.create_producer(topic).send(b"one")
        else:
            client.subscribe(topic, "s")
    except (pulsar.AuthorizationError, pulsar.AuthenticationError):
        return False
    finally:
        client.close()
    return True


def http_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    if action == "publish":
        status = broker.act(person, do="publish", topic=topic, body="one")
    elif action == "manage":
        status = broker.act(person, do="empty", topic=topic)
    else:
        status, _ = broker.request("GET", f"/v1/peek?topic={topic}", token=person.token)
    assert status in (200, 403, 404), status
    return status != 403


def nsq_http_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    basic = base64.b64encode(f"{person.name}:{person.password}".encode()).decode()
    target = f"/pub?topic={topic}" if action == "publish" else f"/topic/empty?topic={topic}"
    headers = {"Authorization": f"Basic {basic}"}
    status, _ = broker.request("POST", target, b"one", scheme="nsq-http", headers=headers)
    assert status in (200, 403, 404), status
    return status != 403


def pulsar_http_can(broker: Guarded, person: Person, action: str, topic: str) -> bool:
    target = f"/admin/v2/persistent/public/default/{topic}/unload"
    status, _ = broker.request("PUT", target, scheme="pulsar-http", token=person.token)
    assert status in (204, 401, 403, 404), status
    return status in (204, 404)


logging.getLogger("nats").setLevel(logging.CRITICAL)
