"""Random scripts of NSQ's and beanstalk's commands on the same topics, on the model and in the engine side by side.

`Stage` holds the two together: after each step it hands the model what came and asks whether that is all, and compares
the broker's figures with the model's. `Scene` plays a `Script`, which a seed makes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mq_shards.csrc._core import lib
from mq_shards.gateway.catalog import Channel as ChannelFigures
from mq_shards.gateway.catalog import Topic as TopicFigures

from tests.beanstalk.replies import OWN_FIELDS, Comparison, take_replies
from tests.engine import NSQ, Engine
from tests.model.beanstalk import SECOND
from tests.model.channel_state import EPHEMERAL, MS, Channel, Client, State, Topic
from tests.model.channels import Broker, NoChannelError, NotFoundError
from tests.model.scripts import Command
from tests.nsq import frames
from tests.nsq.frames import HEARTBEAT, MESSAGE, Frame, parse_message, take_frame

OWN = OWN_FIELDS | {"total-jobs", "cmd-delete", "cmd-pause-tube"}
# An id that is none, and the number of a message that is none.
STRANGER = 0xFFFF_FFFF_0000
NOBODYS = 999_999
# Commands that end a connection, and what it is told.
ENDS = (
    (b"BAD\n", b"E_INVALID invalid command BAD"),
    (b"DPUB a 3600001\n\0\0\0\1x", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    (b"PUB a!\n\0\0\0\1x", b'E_BAD_TOPIC PUB topic name "a!" is not valid'),
    (b"SUB a\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
)


@dataclass
class Stage:
    model: Broker
    engine: Engine
    transcript: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.comparison = Comparison(ignored_fields=OWN)
        self.started_ns = self.engine.now_ns
        self.epoch_ns = self.engine.wall_ns
        self.bean: list[int] = []  # the engine's number of each of the model's connections
        self.nsq: dict[int, int] = {}
        self.silent: set[int] = set()
        self.connected = 0

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(self) -> int:
        number = self.model.connect()
        self.bean.append(self.engine.connect())
        return number

    def connect_nsq(self) -> Client:
        self.connected += 1
        number = self.connected
        self.nsq[number] = self.engine.connect(NSQ)
        self.engine.send(self.nsq[number], b"  V2")
        return self.model.connect_nsq(number)

    def close_nsq(self, client: Client, *, half: bool) -> None:
        del self.model.clients[client.number]
        conn = self.nsq.pop(client.number)
        if half:
            self.engine.half_close(conn)
        self.engine.close(conn)

    def clients(self) -> list[Client]:
        return [client for client in self.model.clients.values() if client.open]

    def conns(self) -> list[int]:
        return [n for n in range(len(self.bean)) if self.model.is_open(n)]

    # --- what came --------------------------------------------------------------------------------------------------

    def check(self, sender: int | None = None) -> None:
        """After a step: all that came was allowed, all that was to come did, and the figures agree. `sender`: of the
        beanstalk connections, whose replies tell ids."""
        while True:
            answered = False
            for client in list(self.model.clients.values()):
                if client.number in self.nsq:
                    answered |= self._take_frames(client)
            if not answered:
                break
        self._compare_replies(sender)
        self.model.at_rest()
        self._compare_figures()

    def _take_frames(self, client: Client) -> bool:
        """True if something was said in reply."""
        conn = self.nsq[client.number]
        data = bytearray(self.engine.received(conn))
        told: list[Frame] = []
        beats = 0
        while (frame := take_frame(data)) is not None:
            if frame.kind == MESSAGE:
                message = parse_message(frame)
                number = self.model.delivered(client, message.body, message.attempts, message.timestamp - self.epoch_ns)
                self._pair(number, int(message.id, 16))
            else:
                told.append(frame)
                beats += frame.data == HEARTBEAT
        assert not data, f"half a frame: {bytes(data)!r}"
        expected, client.expected = client.expected, []
        assert told == expected, f"client {client.number}: {told} where {expected} belongs"
        if not client.open:
            assert self.engine.is_ended(conn), f"client {client.number} should be closed"
            self.engine.close(conn)
            del self.nsq[client.number], self.model.clients[client.number]
            return True
        assert not self.engine.is_ended(conn), f"client {client.number} was closed"
        if beats and client.number not in self.silent:
            self.model.hear(client)
            self.engine.send(conn, b"NOP\n")
        return beats > 0

    def _pair(self, number: int, actual: int) -> None:
        known = self.comparison
        if number not in known.actual_of:
            for other, other_actual in known.actual_of.items():
                assert (number < other) == (actual < other_actual), "ids rise with time"
            known.actual_of[number] = actual
            known.expected_of[actual] = number
        assert known.actual_of[number] == actual and known.expected_of.get(actual) == number, f"id {actual:x}"

    def _compare_replies(self, first: int | None) -> None:
        order = [n for n in range(len(self.bean)) if n != first]
        for conn in [*([] if first is None else [first]), *order]:
            expected = take_replies(bytearray(self.model.received(conn)))
            if not self.model.is_open(conn) and not expected:
                continue
            left = bytearray(self.engine.received(self.bean[conn]))
            actual = take_replies(left)
            for want, got in zip(expected, actual, strict=False):
                self.comparison.check(want, got)
            assert len(actual) == len(expected) and not left, f"connection {conn}: {actual} where {expected} belong"

    # --- figures ----------------------------------------------------------------------------------------------------

    def _compare_figures(self) -> None:
        found = {topic.name.encode("latin-1"): topic for topic in self.engine.catalog().values()}
        model = self.model
        listed = {name for name, topic in model.topics.items() if topic.durable or model.jobs_of(name)}
        assert found.keys() - self._have_been_filled() <= listed <= found.keys()
        for name in listed:
            self._compare_topic(model.topics[name], found[name])

    def _have_been_filled(self) -> set[bytes]:
        """Tubes that have had messages, and somebody knows: they are listed while that is so."""
        model = self.model
        known = {name for name, tube in model.tubes.items() if tube.using or tube.watching}
        return {name for name in known & model.topics.keys() if model.topics[name].messages != 0}

    def _compare_topic(self, topic: Topic, found: TopicFigures) -> None:
        jobs = len(self.model.jobs_of(topic.name))
        flags = lib.FIGURES_PAUSED if topic.stopped_at is not None else 0
        flags |= lib.FIGURES_DURABLE if topic.durable else 0
        flags |= lib.FIGURES_EPHEMERAL if topic.durable and topic.ephemeral else 0
        depth = len(topic.kept)
        if not topic.channels:
            depth = len(topic.waiting) + max(depth, jobs if topic.wanted else 0)
        expected = {
            "flags": flags, "depth": depth, "jobs": jobs, "channels": sorted(topic.channels),
            "messages": topic.messages, "message_bytes": topic.message_bytes,
        }  # fmt: skip
        got = {
            "flags": found.flags, "depth": found.depth, "jobs": found.jobs,
            "channels": sorted(c.name.encode() for c in found.channels),
            "messages": None if topic.messages is None else found.messages,
            "message_bytes": None if topic.message_bytes is None else found.message_bytes,
        }  # fmt: skip
        assert got == expected, f"topic {topic.name!r}: {got} where {expected} belongs"
        for channel in found.channels:
            self._compare_channel(topic.channels[channel.name.encode()], channel)

    def _compare_channel(self, channel: Channel, found: ChannelFigures) -> None:
        flags = (lib.FIGURES_PAUSED if channel.paused else 0) | (lib.FIGURES_EPHEMERAL if channel.ephemeral else 0)
        depth = channel.count(State.NEW) + channel.count(State.AGAIN)
        expected = (
            flags, len(channel.clients), depth, channel.count(State.IN_FLIGHT), channel.count(State.DEFERRED),
            channel.messages, channel.requeues, channel.timeouts, channel.delivered, channel.finished,
            None if channel.oldest is None else channel.oldest + self.epoch_ns,
        )  # fmt: skip
        got = (
            found.flags % lib.FIGURES_POLICY, found.consumer_count, found.depth, found.in_flight, found.deferred,
            None if channel.messages is None else found.messages, found.requeues, found.timeouts,
            found.delivered, found.finished,
            self.engine.oldest(channel.topic.name, channel.name),
        )  # fmt: skip
        where = f"{channel.topic.name!r} {channel.name!r}"
        assert got == expected, f"{where}: {got} where {expected} belongs (flags, consumers, depth, in flight, ...)"
        consumers = {c.conn: (c.credit, c.in_flight, c.messages, c.finishes, c.requeues) for c in found.consumers}
        wanted = {
            self.engine.number(self.nsq[c.number]): (c.credit, len(c.in_flight()), c.messages, c.finishes, c.requeues)
            for c in channel.clients
        }
        assert consumers == wanted, f"{where}: consumers {consumers} where {wanted} belong"

    # --- steps ------------------------------------------------------------------------------------------------------

    def say(self, client: Client, data: bytes, *, now: bool = True) -> None:
        self.transcript.append(f"client {client.number}: {data[:80]!r}")
        self.model.hear(client)
        conn = self.nsq[client.number]
        if now:
            self.engine.send(conn, data)
        else:
            self.engine.write(conn, data)

    def run(self, conn: int, command: Command) -> None:
        self.transcript.append(f"{conn} sends {command.render(command.job)[:80]!r}")
        self.model.send(conn, command.render(command.job))
        job = None if command.job is None else self.comparison.actual_id(command.job)
        self.engine.send(self.bean[conn], command.render(job))

    def change(self, what: int, topic: bytes, channel: bytes) -> None:
        model = self.model
        with_topic: dict[int, Callable[[], None]] = {
            lib.CHANGE_MAKE: lambda: model.make_topic(topic),
            lib.CHANGE_DELETE: lambda: model.delete_topic(topic),
            lib.CHANGE_EMPTY: lambda: model.empty_topic(topic),
            lib.CHANGE_PAUSE: lambda: model.pause_topic(topic, True),
            lib.CHANGE_UNPAUSE: lambda: model.pause_topic(topic, False),
        }
        with_channel: dict[int, Callable[[], None]] = {
            lib.CHANGE_MAKE: lambda: model.make_channel(topic, channel),
            lib.CHANGE_DELETE: lambda: model.delete_channel(topic, channel),
            lib.CHANGE_EMPTY: lambda: model.empty_channel(topic, channel),
            lib.CHANGE_PAUSE: lambda: model.pause_channel(topic, channel, True),
            lib.CHANGE_UNPAUSE: lambda: model.pause_channel(topic, channel, False),
        }
        expected = lib.STATUS_OK
        try:
            (with_channel if channel else with_topic)[what]()
        except NotFoundError:
            expected = lib.STATUS_NOT_FOUND
        except NoChannelError:
            expected = lib.STATUS_NONE
        assert self.engine.change(what, topic, channel) == expected

    def let_pass(self, ns: int) -> None:
        """Stops, and compares, whenever something is due."""
        until = self.model.now + ns
        while True:
            at = min(self.model.next_moment(), self.engine.next_ns() - self.started_ns)
            if at > until:
                break
            self._move_to(at)
        self._move_to(until)

    def _move_to(self, at: int) -> None:
        self.model.begin()
        self.model.advance_to(at)
        self.engine.advance_to(self.started_ns + at)
        assert self.engine.now_ns - self.started_ns == self.model.now
        self.check()

    def forget_connections(self) -> None:
        self.nsq.clear()
        self.silent.clear()
        self.model.clients.clear()
        self.bean = [0] * len(self.bean)


TOPICS = (b"a", b"b", b"c", b"default", b"e" + EPHEMERAL)
CHANNELS = (b"x", b"y", b"z" + EPHEMERAL)
CHANGES = {
    lib.CHANGE_MAKE: "make", lib.CHANGE_DELETE: "delete", lib.CHANGE_EMPTY: "empty", lib.CHANGE_PAUSE: "pause",
    lib.CHANGE_UNPAUSE: "unpause",
}  # fmt: skip
MOST = 5  # connections of a kind

# What may happen, and how often: so many times of the sum.
ACTS = {
    "publish": 6, "burst": 5, "consume": 6, "finish_all": 2, "ready": 4, "subscribe": 4, "change_topic": 5,
    "change_channel": 3, "advance": 4, "bean": 6, "work": 4, "wait": 1, "close_nsq": 2, "stop": 1, "nonsense": 1,
    "connect_nsq": 2, "connect": 1, "close": 1, "restart": 1, "restart_acceptor": 1, "restart_worker": 2,
    "rewrite_log": 2, "crowd": 2,
}  # fmt: skip
# Of these each script leaves some out.
RARE = (
    "change_topic", "change_channel", "bean", "work", "burst", "subscribe", "stop", "nonsense", "restart",
    "restart_acceptor", "restart_worker", "rewrite_log",
)  # fmt: skip


@dataclass(frozen=True)
class Script:
    """What happens, each act with the seed of its own choices: so that acts can be left out and the others stay."""

    topics: tuple[bytes, ...]
    acts: tuple[tuple[str, int], ...]

    @staticmethod
    def at_random(seed: int, acts: int) -> Script:
        """About a few topics, and not everything happens in it."""
        rng = random.Random(seed)
        topics = tuple(rng.sample(TOPICS, rng.choice([1, 1, 2, 3])))
        weights = {act: weight for act, weight in ACTS.items() if act not in RARE or rng.random() < 0.6}
        names = rng.choices(list(weights), list(weights.values()), k=acts)
        return Script(topics, tuple((name, rng.getrandbits(32)) for name in names))

    def without(self, start: int, end: int) -> Script:
        return replace(self, acts=self.acts[:start] + self.acts[end:])


def smallest(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Of a script that fails, one that does and in which no act is superfluous."""
    size = len(script.acts)
    while size:
        start = 0
        while start < len(script.acts):
            shorter = script.without(start, start + size)
            if fails(shorter):
                script = shorter
            else:
                start += size
        size //= 2
    return script


class Scene:
    """Plays a script. An act that is not possible does not happen."""

    def __init__(self, script: Script, workers: int, shards: int, ring_bytes: int, piece: int) -> None:
        self.script = script
        self.topics = script.topics
        self.workers = workers
        self.shards = shards
        self.stage = Stage(Broker(), Engine(workers, shards, ring_bytes, piece))
        self.model = self.stage.model
        self.rng = random.Random(0)
        self.bodies = 0

    def play(self) -> None:
        self.stage.connect()
        for act, seed in self.script.acts:
            self.rng = random.Random(seed)
            if self.possible(act):
                getattr(self, act)()

    def close_all(self) -> None:
        self.stage.engine.dispose()

    def possible(self, act: str) -> bool:
        match act:
            case "subscribe" | "connect_nsq" | "crowd":
                return len(self.stage.clients()) < MOST
            case "connect":
                return len(self.stage.conns()) < MOST
            case "close":
                return len(self.stage.conns()) > 1
            case "publish" | "burst" | "nonsense" | "close_nsq":
                return bool(self.stage.clients())
            case "consume" | "finish_all" | "ready" | "stop":
                return bool(self.consumers())
            case "bean" | "work":
                return bool(self.idle())
            case "wait":
                # One at a time: which of several gets what is not for this test to say.
                return bool(self.idle()) and not self.waiting()
            case "restart":
                return self.may_restart(None)
            case _:
                return True

    def step(self, *, settled_order: bool = True) -> None:
        """Deadlines differ by this much, except for those of what comes at once."""
        self.stage.let_pass(MS)
        self.model.begin(settled_order=settled_order)

    # --- NSQ's clients ----------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """A consumer as most are."""
        self.step()
        client = self.stage.connect_nsq()
        timeout = self.rng.choice([None, None, 1000, 2500])
        if timeout:
            self.model.identify(client, None, timeout)
            self.stage.say(client, frames.identify(msg_timeout=timeout))
        self.join(client, self.topic(), self.rng.choice(CHANNELS))
        if self.rng.random() < 0.7:
            self.step()
            self.say_ready(client, self.rng.choice([1, 2, 5, 100]))
            self.stage.check()

    def join(self, client: Client, topic: bytes, channel: bytes) -> None:
        self.model.subscribe(client, topic, channel)
        self.stage.say(client, frames.sub(topic.decode(), channel.decode()))
        self.stage.check()

    def crowd(self) -> None:
        """Consumers of one channel who are all ready for more than comes: they share it."""
        topic, channel = self.topic(), self.rng.choice(CHANNELS)
        for _ in range(min(MOST - len(self.stage.clients()), 3)):
            self.step()
            client = self.stage.connect_nsq()
            self.join(client, topic, channel)
            self.step()
            self.say_ready(client, 100)
            self.stage.check()
        self.step()
        self.say_many(client, topic, [self.body() for _ in range(self.rng.choice([2, 7, 20]))])
        self.stage.check()

    def connect_nsq(self) -> None:
        self.step()
        client = self.stage.connect_nsq()
        heartbeat = self.rng.choice([None, 1000, 60000])
        if heartbeat:
            self.model.identify(client, heartbeat, None)
            self.stage.say(client, frames.identify(heartbeat_interval=heartbeat))
        if self.rng.random() < 0.2:
            self.stage.silent.add(client.number)
        self.stage.check()

    def publish(self) -> None:
        self.step()
        self.say_something(self.client())
        self.stage.check()

    def consume(self) -> None:
        self.step()
        client = self.rng.choice(self.consumers())
        mine = [d.message.number for d in client.in_flight()]
        held = [] if client.channel is None else [*client.channel.held, NOBODYS]
        self.say_about_message(client, self.rng.choice(mine if mine and self.rng.random() < 0.8 else held))
        self.stage.check()

    def finish_all(self) -> None:
        self.step(settled_order=False)
        client = self.rng.choice(self.consumers())
        for delivery in client.in_flight():
            number = delivery.message.number
            self.model.finish(client, number, self.text(number))
            self.stage.say(client, frames.fin(self.text(number)), now=False)
        self.stage.engine.settle()
        self.stage.check()

    def ready(self) -> None:
        self.step()
        self.say_ready(self.rng.choice(self.consumers()), self.rng.choice([0, 1, 2, 3, 7, 100, 2500]))
        self.stage.check()

    def burst(self) -> None:
        """Several clients at once, of which one publishes: so the order of messages is known. Each message is spoken of
        once, and by who has it: so it is known what comes of it."""
        self.step(settled_order=False)
        clients = [self.client() for _ in range(self.rng.randrange(1, 8))]
        spoken: set[int] = set()
        for client in clients:
            mine = [d.message.number for d in client.in_flight() if d.message.number not in spoken]
            if client is clients[0] and not self.many_wait() and self.rng.random() < 0.6:
                self.say_something(client, now=False)
            elif mine and self.rng.random() < 0.8:
                number = self.rng.choice(mine)
                spoken.add(number)
                self.say_about_message(client, number, now=False)
            elif client.channel is not None:
                self.say_ready(client, self.rng.choice([0, 1, 3, 50]), now=False)
        self.stage.engine.settle()
        self.stage.check()

    def stop(self) -> None:
        self.step()
        client = self.rng.choice(self.consumers())
        self.model.stop(client)
        self.stage.say(client, b"CLS\n")
        self.stage.check()

    def nonsense(self) -> None:
        """What ends a connection."""
        self.step()
        client = self.client()
        line, text = self.rng.choice(ENDS)
        if line.startswith((b"RDY", b"CLS")) and client.closing:
            return
        if line.startswith(b"SUB") and client.channel is not None:
            text = b"E_INVALID cannot SUB in current state"
        if line.startswith(b"RDY") and client.channel is None:
            text = b"E_INVALID cannot RDY in current state"
        self.model.fail(client, text)
        self.stage.say(client, line)
        self.stage.check()

    def close_nsq(self) -> None:
        self.step()
        client = self.client()
        self.stage.transcript.append(f"client {client.number} closes")
        self.model.hang_up(client)
        self.stage.close_nsq(client, half=self.rng.random() < 0.5)
        self.stage.check()

    # --- topics and channels ----------------------------------------------------------------------------------------

    def change_topic(self) -> None:
        self.change(self.topic(), b"")

    def change_channel(self) -> None:
        self.change(self.topic(), self.rng.choice(CHANNELS))

    def change(self, topic: bytes, channel: bytes) -> None:
        self.step()
        kinds = [lib.CHANGE_MAKE, lib.CHANGE_DELETE, lib.CHANGE_EMPTY, lib.CHANGE_PAUSE, lib.CHANGE_UNPAUSE]
        what = self.rng.choices(kinds, [3, 1, 3, 3, 2])[0]
        if what == lib.CHANGE_PAUSE and not channel and not self.model.topic(topic).durable:
            what = lib.CHANGE_MAKE  # whether the pause of a tube alone outlasts its worker is not said
        self.stage.transcript.append(f"{CHANGES[what]} {topic!r} {channel!r}")
        self.stage.change(what, topic, channel)
        self.stage.check()

    def advance(self) -> None:
        seconds = self.rng.choice([0.5, 1.0, 2.0, 5.0, 30.0, 61.0, 200.0])
        self.stage.transcript.append(f"{seconds} s pass")
        self.stage.let_pass(int(seconds * SECOND))

    # --- the job queue ----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        self.step()
        self.stage.connect()
        self.stage.check()

    def close(self) -> None:
        self.step()
        conn = self.rng.choice(self.stage.conns())
        self.stage.transcript.append(f"{conn} closes")
        self.model.close(conn)
        self.stage.engine.close(self.stage.bean[conn])
        self.stage.check()

    def bean(self) -> None:
        self.step()
        conn = self.rng.choice(self.idle())
        self.stage.run(conn, self.command(conn))
        self.stage.check(conn)

    def work(self) -> None:
        """Reserves, and does something with it."""
        self.step()
        conn = self.rng.choice(self.idle())
        self.stage.run(conn, Command(b"reserve-with-timeout 0\r\n"))
        self.stage.check(conn)
        held = self.model.conns[conn].reserved
        if held:
            self.step()
            self.stage.run(conn, self.about_job(held[-1].id))
            self.stage.check(conn)

    def wait(self) -> None:
        self.step()
        conn = self.rng.choice(self.idle())
        self.stage.run(conn, Command(b"reserve\r\n"))
        self.stage.check(conn)

    # --- restarts ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.step(settled_order=False)
        self.stage.transcript.append("everything restarts")
        self.model.restart()
        self.stage.forget_connections()
        self.stage.engine.restart()
        self.stage.connect()
        self.stage.check()

    def restart_acceptor(self) -> None:
        self.step(settled_order=False)
        self.stage.transcript.append("the acceptor restarts")
        self.model.restart_acceptor()
        self.stage.forget_connections()
        self.stage.engine.restart_acceptor()
        self.stage.connect()
        self.stage.check()

    def restart_worker(self) -> None:
        worker = self.rng.randrange(self.workers)
        if not self.may_restart(worker):
            return
        self.step(settled_order=False)
        self.stage.transcript.append(f"worker {worker} restarts")
        self.model.restart_worker(self.names_of(worker))
        self.stage.engine.restart_worker(worker)
        self.stage.check()

    def rewrite_log(self) -> None:
        self.step()
        shard = self.stage.engine.shard_of(self.topic())
        self.stage.transcript.append(f"the log of shard {shard} is rewritten")
        self.stage.engine.rewrite_log(shard)
        for topic in self.model.topics.values():
            if self.stage.engine.shard_of(topic.name) == shard:
                topic.rewritten = True
                topic.written &= topic.durable or bool(self.model.jobs_of(topic.name))
        self.stage.check()

    def names_of(self, worker: int) -> set[bytes]:
        return {name for name in {*TOPICS, *self.model.tubes} if self.stage.engine.worker_of(name) == worker}

    def may_restart(self, worker: int | None) -> bool:
        """Not when messages went to ephemeral channels alone: it is not said what becomes of them."""
        names = set(TOPICS) if worker is None else self.names_of(worker)
        return not any(topic.unlogged for name, topic in self.model.topics.items() if name in names)

    # --- what is chosen ---------------------------------------------------------------------------------------------

    def topic(self) -> bytes:
        return self.rng.choice(self.topics)

    def client(self) -> Client:
        return self.rng.choice(self.stage.clients())

    def consumers(self) -> list[Client]:
        return [c for c in self.stage.clients() if c.channel is not None and not c.closing]

    def idle(self) -> list[int]:
        return [n for n in self.stage.conns() if not self.model.is_waiting(n)]

    def waiting(self) -> list[int]:
        return [n for n in self.stage.conns() if self.model.is_waiting(n)]

    def many_wait(self) -> bool:
        return any(len(self.model.conns[n].watch) > 1 for n in self.waiting())

    def body(self) -> bytes:
        self.bodies += 1
        return b"%d:" % self.bodies + b"." * self.rng.choice([0, 0, 0, 10, 300, 5000])

    def say_something(self, client: Client, *, now: bool = True) -> None:
        topic, kind = self.topic(), self.rng.choice(["PUB", "PUB", "PUB", "DPUB", "DPUB", "MPUB"])
        bodies = [self.body()]
        if kind == "MPUB":
            bodies += [self.body() for _ in range(self.rng.choice([0, 1, 2, 19]))]
            self.say_many(client, topic, bodies, now=now)
            return
        name = topic.decode()
        delay = self.rng.choice([0, 1000, 3000, 90000]) if kind == "DPUB" else 0
        data = frames.dpub(name, delay, bodies[0]) if kind == "DPUB" else frames.pub(name, bodies[0])
        self.model.publish(client, topic, bodies, delay)
        self.stage.say(client, data, now=now)

    def say_many(self, client: Client, topic: bytes, bodies: list[bytes], *, now: bool = True) -> None:
        self.model.publish(client, topic, bodies)
        self.stage.say(client, frames.mpub(topic.decode(), bodies), now=now)

    def say_ready(self, client: Client, credit: int, *, now: bool = True) -> None:
        self.model.ready(client, credit)
        self.stage.say(client, frames.rdy(credit), now=now)

    def text(self, number: int) -> bytes:
        return b"%016x" % self.stage.comparison.actual_of.get(number, STRANGER + number)

    def say_about_message(self, client: Client, number: int, *, now: bool = True) -> None:
        text = self.text(number)
        kind = self.rng.choice(["FIN", "FIN", "FIN", "REQ", "REQ", "TOUCH"])
        if kind == "FIN":
            self.model.finish(client, number, text)
            self.stage.say(client, frames.fin(text), now=now)
        elif kind == "REQ":
            delay = self.rng.choice([0, 0, 2000, 100000, 4000000])
            self.model.requeue(client, number, text, delay)
            self.stage.say(client, frames.req(text, delay), now=now)
        else:
            self.model.extend(client, number, text)
            self.stage.say(client, frames.touch(text), now=now)

    def about_job(self, job: int) -> Command:
        pri, delay = self.rng.choice([0, 1024, 5000]), self.rng.choice([0, 0, 2, 40])
        kinds = (
            b"delete %d", b"delete %d", b"touch %d", b"peek %d", b"kick-job %d", b"reserve-job %d",
            b"release %%d %d %d" % (pri, delay), b"release %%d %d %d" % (pri, delay), b"bury %%d %d" % pri,
        )  # fmt: skip
        return Command(self.rng.choice(kinds) + b"\r\n", job)

    def command(self, conn: int) -> Command:
        tube = self.rng.choice([name for name in self.topics if not name.endswith(EPHEMERAL)] or [b"a"])
        kind = self.rng.choice(["put", "put", "put", "job", "job", "use", "watch", "ignore", "tube", "pause", "other"])
        if kind == "put":
            pri, delay = self.rng.choice([0, 1024]), self.rng.choice([0, 0, 2, 40])
            body = self.body()
            return Command(b"put %d %d 3 %d\r\n%s\r\n" % (pri, delay, len(body), body))
        if kind == "job":
            known = self.model.jobs.keys() & self.stage.comparison.actual_of.keys()
            return self.about_job(self.rng.choice([*sorted(known), NOBODYS]))
        if kind == "pause":
            return Command(b"pause-tube %s 5\r\n" % tube)
        if kind == "other":
            lines = (b"peek-ready", b"peek-delayed", b"peek-buried", b"list-tubes", b"kick 1", b"kick 100")
            return Command(self.rng.choice(lines) + b"\r\n")
        # Whether a tube that is used already is wanted when it is named again is not said.
        if kind == "tube" or (kind == "use" and tube == self.model.conns[conn].use.name):
            return Command(b"stats-tube %s\r\n" % tube)
        return Command(b"%s %s\r\n" % (kind.encode(), tube))
