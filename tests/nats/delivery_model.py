"""Who gets which message: a naive model of one server, and scripts that are played before it and a real one.

What is published has a number, so that it is known of each message who got it. Of a queue group it is chance who does:
the model says who may, and takes note of who did. Between a change of what somebody wants and what is published there
is a PONG, so that there is one right answer; between messages of one publisher there is none.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from tests.nats.wire import Wire

CLIENTS = 6
NO_ONE = b"NATS/1.0 503\r\n"
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


@dataclass(frozen=True)
class Sub:
    client: int
    sid: int
    pattern: str
    queue: str = ""


@dataclass(frozen=True)
class Unsub:
    client: int
    sid: int
    max: int = 0  # 0: at once


@dataclass(frozen=True)
class Pub:
    client: int
    subject: str
    reply: str = ""
    header: bool = False
    bytes: int = 0  # beside its number
    times: int = 1


@dataclass(frozen=True)
class Leave:
    client: int


Step = Sub | Unsub | Pub | Leave


def matches(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and matches(".".join(wanted[:-1]), ".".join(tokens[: len(wanted) - 1]))
    return len(wanted) == len(tokens) and all(w in ("*", t) for w, t in zip(wanted, tokens, strict=True))


@dataclass
class Subscription:
    sid: int
    pattern: str
    queue: str
    max: int = 0
    got: list[int] = field(default_factory=list)

    def is_full(self) -> bool:
        return self.max > 0 and len(self.got) >= self.max


@dataclass
class Client:
    """What the model knows of one; every second one knows no headers, the last has no echo."""

    headers: bool
    echo: bool
    subs: dict[int, Subscription] = field(default_factory=dict)
    gone: list[Subscription] = field(default_factory=list)
    told_of_no_one: int = 0

    def connect_line(self) -> bytes:
        words = (b"false", b"true")
        return b'CONNECT {"verbose":false,"pedantic":false,"headers":%s,"no_responders":%s,"echo":%s}\r\n' % (
            words[self.headers], words[self.headers], words[self.echo],
        )  # fmt: skip


def new_client(number: int) -> Client:
    return Client(headers=number % 2 == 0, echo=number != CLIENTS - 1)


@dataclass
class Published:
    number: int
    step: Pub

    def payload(self) -> bytes:
        return b"%06d" % self.number + b"x" * self.step.bytes

    def command(self, prefix: str) -> bytes:
        subject, reply = (prefix + self.step.subject).encode(), (prefix + self.step.reply).encode()
        words = [subject, reply] if self.step.reply else [subject]
        payload = self.payload()
        if not self.step.header:
            return b"PUB %s %d\r\n%s\r\n" % (b" ".join(words), len(payload), payload)
        sizes = (len(HEADER), len(HEADER) + len(payload))
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (b" ".join(words), *sizes, HEADER, payload)

    def heard(self, prefix: str, sid: int, headers: bool) -> bytes:
        """What a subscriber is sent."""
        words = [prefix + self.step.subject, str(sid), *([prefix + self.step.reply] if self.step.reply else [])]
        line, payload = " ".join(words).encode(), self.payload()
        if not (self.step.header and headers):
            return b"MSG %s %d\r\n%s\r\n" % (line, len(payload), payload)
        return b"HMSG %s %d %d\r\n%s%s\r\n" % (line, len(HEADER), len(HEADER) + len(payload), HEADER, payload)


@dataclass
class Heard:
    """A message as it came."""

    sid: int
    number: int | None  # None: a 503
    raw: bytes


MESSAGE = re.compile(rb"(MSG|HMSG) \S+ (\d+)(?: \S+)??((?: \d+){1,2})\r\n")
LINE = re.compile(rb"(?:INFO|PONG|PING|\+OK)[^\r]*\r\n")


def parse(data: bytes) -> list[Heard]:
    """All of what a client heard; nothing may be left."""
    found, at = [], 0
    while at < len(data):
        if line := LINE.match(data, at):
            at = line.end()
            continue
        head = MESSAGE.match(data, at)
        assert head, f"heard {data[at : at + 100]!r}"
        sizes = [int(size) for size in head[3].split()[-(1 if head[1] == b"MSG" else 2) :]]
        end = head.end() + sizes[-1]
        assert data[end : end + 2] == b"\r\n"
        header = data[head.end() : head.end() + sizes[0]] if head[1] == b"HMSG" else b""
        payload = data[head.end() + len(header) : end]
        number = None if header.startswith(NO_ONE) else int(payload[:6])
        found.append(Heard(int(head[2]), number, data[at : end + 2]))
        at = end + 2
    return found


class Play:
    """One script before one server. `prefix` begins all subjects, so that scripts do not meet.

    What members of a group get is `in_order` where there is one acceptor. With more, a message whose member has gone
    meanwhile is passed on, and may be overtaken: by one that takes the place of the last who wanted few."""

    def __init__(self, port: int, prefix: str, *, in_order: bool = True) -> None:
        self.port, self.prefix, self.in_order = port, prefix, in_order
        self.models = [new_client(number) for number in range(CLIENTS)]
        self.wires: list[Wire | None] = [None] * CLIENTS
        self.published: list[Published] = []
        self.looked_at = 0  # of those published
        self.unsure = False  # members that want few have come and gone: when the others knew is not known
        self.publisher: int | None = None  # who has said something that no PONG has confirmed

    # --- what is said ---

    def run(self, steps: list[Step]) -> None:
        try:
            for step in steps:
                self._take(step)
            self._look()
        finally:
            for wire in self.wires:
                if wire is not None:
                    wire.close()

    def _wire(self, client: int) -> Wire:
        wire = self.wires[client]
        if wire is None:
            wire = self.wires[client] = Wire(self.port)
            self.models[client] = new_client(client)
            wire.send(self.models[client].connect_line())
            wire.barrier()
        return wire

    def _take(self, step: Step) -> None:
        if isinstance(step, Pub):
            if self.publisher not in (None, step.client):
                self._wire(self.publisher).barrier()  # one after the other: there is one order of all
            self._publish(step)
            return
        self._look()
        wire, model = self._wire(step.client), self.models[step.client]
        if isinstance(step, Leave):
            self._leave(step.client)
        elif isinstance(step, Sub):
            queue = f" {step.queue}" if step.queue else ""
            wire.send(f"SUB {self.prefix}{step.pattern}{queue} {step.sid}\r\n".encode())
            model.subs.setdefault(step.sid, Subscription(step.sid, step.pattern, step.queue))
        else:
            wire.send(f"UNSUB {step.sid}{f' {step.max}' if step.max else ''}\r\n".encode())
            if (known := model.subs.get(step.sid)) is not None:
                known.max = step.max if step.max > len(known.got) else 0
                self.unsure |= not self.in_order and bool(known.max and known.queue)
                if not known.max:
                    model.gone.append(model.subs.pop(step.sid))
        if not isinstance(step, Leave):
            wire.barrier()

    def _publish(self, step: Pub) -> None:
        header = step.header and self.models[step.client].headers
        wire = self._wire(step.client)
        for _ in range(step.times):
            made = Pub(step.client, step.subject, step.reply, header, step.bytes)
            self.published.append(Published(len(self.published), made))
            wire.send(self.published[-1].command(self.prefix))
        self.publisher = step.client

    def _leave(self, client: int) -> None:
        """It takes its leave first: what is given to one whose end is not known yet is lost anywhere."""
        wire = self._wire(client)
        wire.send(b"".join(b"UNSUB %d\r\n" % sid for sid in self.models[client].subs))
        wire.barrier()
        wire.close()
        self.wires[client] = None
        self.models[client] = new_client(client)

    # --- what has to have come ---

    def _look(self) -> None:
        """Until all have what is theirs; then everything is as the model says."""
        if self.publisher is not None:
            self._wire(self.publisher).barrier()
            self.publisher = None
        heard: list[dict[int, list[Heard]]] = []
        for number, wire in enumerate(self.wires):
            by_message: dict[int, list[Heard]] = {}
            if wire is not None:
                wire.barrier()
                assert not wire.heard.closed
                for message in parse(wire.heard.data):
                    by_message.setdefault(-1 if message.number is None else message.number, []).append(message)
                self._check_order(number, parse(wire.heard.data))
                wire.asked, wire.heard.data = 0, b""
            heard.append(by_message)
        for message in self.published[self.looked_at :]:
            self._check(message, heard)
        for number, by_message in enumerate(heard):
            told = len(by_message.pop(-1, []))
            assert told == self.models[number].told_of_no_one or self.unsure, "who asks no one is told"
            assert not by_message, "nothing else came"
            self.models[number].told_of_no_one = 0
        self.looked_at = len(self.published)

    def _check_order(self, client: int, messages: list[Heard]) -> None:
        model = self.models[client]
        members = {sub.sid for sub in (*model.subs.values(), *model.gone) if sub.queue}
        for sid in {message.sid for message in messages} - (set() if self.in_order else members):
            numbers = [message.number for message in messages if message.sid == sid and message.number is not None]
            assert numbers == sorted(numbers), f"client {client} heard {numbers} in this order"

    def _check(self, message: Published, heard: list[dict[int, list[Heard]]]) -> None:
        step = message.step
        groups: Counter[str] = Counter()
        wanted = False
        wanting: set[str] = set()
        for number, model in enumerate(self.models):
            got = {each.sid: each for each in heard[number].pop(message.number, [])}
            for sid, each in got.items():
                assert each.raw == message.heard(self.prefix, sid, model.headers)
            may = self.wires[number] is not None and (number != step.client or model.echo)
            for sub in list(model.subs.values()) if may else []:
                if not matches(sub.pattern, step.subject):
                    continue
                wanted = True
                if sub.queue:
                    groups[sub.queue] += sub.sid in got
                    if not sub.max or self.in_order:
                        wanting.add(sub.queue)
                else:
                    assert sub.sid in got, f"client {number} got {message} for {sub}"
                if sub.sid in got:
                    del got[sub.sid]
                    sub.got.append(message.number)
                if sub.is_full():
                    model.gone.append(model.subs.pop(sub.sid))
            assert not got, f"client {number} got {message}, which it did not want"
        for queue, count in groups.items():
            assert count == 1 or (count == 0 and queue not in wanting), f"{count} of group {queue} got {message}"
        publisher = self.models[step.client]
        alone = [sub for sub in publisher.subs.values() if not sub.queue]
        listens = bool(step.reply) and any(matches(sub.pattern, step.reply) for sub in alone)
        publisher.told_of_no_one += listens and publisher.headers and not wanted
