"""What docs/subscriptions.md promises of topics, their job queue and their channels, in plain Python: the yardstick for
the engine, as beanstalk.py is for the job queue alone, on which this stands.

Commands come as calls. What is promised exactly, the replies and the figures, is predicted: `expected` has the frames
of each client that are no messages. Which message goes to whom is often left open, so those that came are handed in
(`delivered`) and must be allowed; `at_rest` then demands that nothing was left that should have come.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.arguments import Arguments
from tests.model.beanstalk import SECOND, Model
from tests.model.channel_state import (
    EPHEMERAL,
    HEARTBEAT_NS,
    MAX_MSG_TIMEOUT,
    MAX_RDY,
    MAX_REQ_TIMEOUT,
    MS,
    MSG_TIMEOUT,
    NEVER,
    PRIORITY,
    Channel,
    Client,
    Delivery,
    Message,
    State,
    Topic,
)
from tests.model.state import Conn, Job, Tube
from tests.nsq.frames import HEARTBEAT, OK, RESPONSE, Frame, error


class NotFoundError(Exception):
    """There is no such topic."""


class NoChannelError(Exception):
    """There is no such channel."""


class Broker(Model):
    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.topics: dict[bytes, Topic] = {}
        self.messages: dict[int, Message] = {}
        # Beanstalk connections that use default because all begin so, and those that watch it.
        self.use_began: set[int] = set()
        self.watch_began: set[int] = set()
        self.moment = 0
        self.settled_order = True  # nothing happens in this step between one delivery and the next
        super().__init__()

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(self) -> int:
        number = super().connect()
        self.use_began.add(number)
        self.watch_began.add(number)
        return number

    def connect_nsq(self, number: int) -> Client:
        client = self.clients[number] = Client(number, self.now, self.now + HEARTBEAT_NS)
        return client

    def hear(self, client: Client) -> None:
        client.heard = self.now

    def identify(self, client: Client, heartbeat_ms: int | None, timeout_ms: int | None) -> None:
        if client.channel is not None:
            self.fail(client, b"E_INVALID cannot IDENTIFY in current state")
            return
        if not client.identified:
            # Only the first counts.
            client.heartbeat = (heartbeat_ms * MS) if heartbeat_ms else HEARTBEAT_NS
            client.timeout = (timeout_ms * MS) if timeout_ms else MSG_TIMEOUT
            client.beat_at = self.now + client.heartbeat
        client.identified = True
        client.expected.append(OK)

    def fail(self, client: Client, text: bytes) -> None:
        client.expected.append(error(text))
        self.hang_up(client)

    def hang_up(self, client: Client) -> None:
        client.open = False
        self._leave(client)

    def _leave(self, client: Client) -> None:
        channel, client.channel = client.channel, None
        if channel is None:
            return
        channel.clients.remove(client)
        for delivery in channel.held.values():
            if delivery.holder is client:
                self._again(delivery)
        if channel.ephemeral and not channel.clients:
            self._remove_channel(channel)
            if channel.topic.ephemeral and not channel.topic.channels:
                self._end(channel.topic)

    # --- a client's commands ----------------------------------------------------------------------------------------

    def subscribe(self, client: Client, topic_name: bytes, name: bytes) -> None:
        if client.channel is not None:
            self.fail(client, b"E_INVALID cannot SUB in current state")
            return
        client.channel = self._channel(self._durable(topic_name), name)
        client.channel.clients.append(client)
        client.expected.append(OK)

    def publish(self, client: Client, topic_name: bytes, bodies: Sequence[bytes], delay_ms: int = 0) -> None:
        topic = self._durable(topic_name)
        for body in bodies:
            message = Message(self.next_id, body, self.now, delay_ms * MS, MSG_TIMEOUT)
            self.next_id += 1
            if topic.wanted:
                self._make_job(message, topic)
            self._enter(topic, message)
        client.expected.append(OK)
        self._serve()

    def ready(self, client: Client, credit: int) -> None:
        if client.closing:
            return
        if client.channel is None:
            self.fail(client, b"E_INVALID cannot RDY in current state")
        elif credit > MAX_RDY:
            self.fail(client, b"E_INVALID RDY count %d out of range 0-%d" % (credit, MAX_RDY))
        else:
            client.credit = credit
            client.most_credit = max(client.most_credit, credit)
            client.was_ready = False

    def finish(self, client: Client, number: int, text: bytes) -> None:
        delivery = self._in_flight(client, b"FIN", number, text)
        if delivery is not None and client.channel is not None:
            del client.channel.held[number]
            client.finishes += 1
            client.channel.finished += 1

    def requeue(self, client: Client, number: int, text: bytes, delay_ms: int) -> None:
        delivery = self._in_flight(client, b"REQ", number, text)
        if delivery is None or client.channel is None:
            return
        client.requeues += 1
        client.channel.requeues += 1
        if delay_ms:
            delivery.state, delivery.holder = State.DEFERRED, None
            delivery.due = self.now + min(delay_ms * MS, MAX_REQ_TIMEOUT)
        else:
            self._again(delivery)

    def extend(self, client: Client, number: int, text: bytes) -> None:
        delivery = self._in_flight(client, b"TOUCH", number, text)
        if delivery is not None:
            delivery.deadline = min(self.now + client.timeout, delivery.limit)

    def stop(self, client: Client) -> None:
        """CLS"""
        if client.channel is None or client.closing:
            self.fail(client, b"E_INVALID cannot CLS in current state")
            return
        client.credit = 0
        client.was_ready = False
        client.closing = True
        client.expected.append(Frame(RESPONSE, b"CLOSE_WAIT"))

    def _in_flight(self, client: Client, command: bytes, number: int, text: bytes) -> Delivery | None:
        if client.channel is None:
            self.fail(client, b"E_INVALID cannot %s in current state" % command)
            return None
        delivery = client.channel.held.get(number)
        if delivery is None or delivery.state is not State.IN_FLIGHT:
            why = b"ID not in flight"
        elif delivery.holder is not client:
            why = b"client does not own message"
        else:
            return delivery
        client.expected.append(error(b"E_%s_FAILED %s %s failed %s" % (command, command, text, why)))
        return None

    def _again(self, delivery: Delivery) -> None:
        delivery.state, delivery.holder, delivery.since = State.AGAIN, None, self.moment

    # --- what comes -------------------------------------------------------------------------------------------------

    def begin(self, *, settled_order: bool = True) -> None:
        """Of a step, after which everything is at rest again."""
        self.moment += 1
        self.settled_order = settled_order
        for client in self.clients.values():
            client.most_credit = client.credit
            client.before = len(client.in_flight())
            client.was_ready = client.is_ready()
            client.got = []

    def delivered(self, client: Client, body: bytes, attempts: int, published: int) -> int:
        """The message's number."""
        assert client.channel is not None, f"a message for client {client.number}, which has no channel"
        channel = client.channel
        delivery = next((d for d in channel.held.values() if d.message.body == body), None)
        where = f"{channel.topic.name!r} {channel.name!r}, client {client.number}"
        assert delivery is not None, f"{where}: {body[:40]!r} is not, or no longer, this channel's"
        what = f"{where}: {delivery}"
        assert delivery.state in (State.NEW, State.AGAIN), f"came too early, or twice: {what}"
        assert not channel.paused, f"came in spite of a pause: {what}"
        assert attempts == delivery.attempts + 1, f"came with {attempts} attempts: {what}"
        assert published == delivery.message.published, f"came with the time {published}: {what}"
        key = delivery.message.number if delivery.state is State.NEW else delivery.since
        client.got.append((State.DEFERRED if delivery.loose else delivery.state, key))
        delivery.loose = False
        delivery.state = State.IN_FLIGHT
        delivery.holder = client
        delivery.attempts += 1
        delivery.deadline = self.now + client.timeout
        delivery.limit = self.now + MAX_MSG_TIMEOUT
        client.messages += 1
        channel.delivered += 1
        # In a burst it is not known which of the credits it has seen there were when.
        allowed = max(client.most_credit, client.before)
        assert len(client.in_flight()) <= allowed, f"more than the {allowed} that client {client.number} was ready for"
        return delivery.message.number

    def at_rest(self) -> None:
        """Nothing is left undone, and the order was as it should be."""
        for topic in self.topics.values():
            for channel in topic.channels.values():
                self._channel_at_rest(channel)

    def _channel_at_rest(self, channel: Channel) -> None:
        where = f"{channel.topic.name!r} {channel.name!r}"
        new, again = channel.waiting(State.NEW), channel.waiting(State.AGAIN)
        loose = any(d.loose for d in channel.held.values())
        ready = [c for c in channel.clients if c.is_ready()]
        idle = not (new or again) or channel.paused or not ready
        assert idle, f"{where}: {(new or again)[0]} is kept from client {ready[0].number}"
        got = {state: [key for c in channel.clients for s, key in c.got if s is state] for state in State}
        first_new = min((d.message.number for d in new), default=NEVER)
        assert all(number < first_new for number in got[State.NEW]), f"{where}: message {first_new} was passed over"
        first_again = min((d.since for d in again if not d.loose), default=NEVER)
        assert all(since <= first_again for since in got[State.AGAIN]), f"{where}: an older one was passed over"
        for client in channel.clients:
            numbers = [key for state, key in client.got if state is State.NEW]
            assert numbers == sorted(numbers), f"{where}: client {client.number} got {numbers}"
        if not self.settled_order or loose or got[State.DEFERRED]:
            return
        more = len(got[State.NEW]) - len(got[State.AGAIN])
        assert not again or more <= 1, f"{where}: new messages were preferred"
        assert not new or more >= -1, f"{where}: messages that come again were preferred"
        shares = [len(c.got) for c in channel.clients if c.was_ready_throughout()]
        assert not shares or max(shares) - min(shares) <= 1, f"{where}: shared as {shares}"

    # --- topics and channels ----------------------------------------------------------------------------------------

    def topic(self, name: bytes) -> Topic:
        if name not in self.topics:
            self.topics[name] = Topic(name)
        return self.topics[name]

    def _durable(self, name: bytes) -> Topic:
        topic = self.topic(name)
        topic.durable = topic.written = True
        self._find_or_make(name)
        return topic

    def jobs_of(self, name: bytes) -> list[Job]:
        return [job for job in self.jobs.values() if job.tube.name == name and job.id in self.messages]

    def _enter(self, topic: Topic, message: Message) -> None:
        """It goes to the channels; its job, if it becomes one, is there."""
        self.messages[message.number] = message
        if topic.messages is not None and topic.message_bytes is not None:
            topic.messages += 1
            topic.message_bytes += len(message.body)
        if topic.stopped_at is not None:
            topic.kept.append(message)
        elif topic.durable:
            self._give(topic, message)

    def _give(self, topic: Topic, message: Message, *, loose: bool = False) -> None:
        for channel in topic.channels.values():
            channel.take(message, loose=loose)
        if not topic.channels and not topic.wanted:
            topic.waiting.append(message)
        unlogged = topic.channels and all(channel.ephemeral for channel in topic.channels.values())
        topic.unlogged |= bool(unlogged) and not topic.wanted and not topic.ephemeral

    def _channel(self, topic: Topic, name: bytes) -> Channel:
        if name in topic.channels:
            return topic.channels[name]
        channel = Channel(name, topic, topic.ephemeral or name.endswith(EPHEMERAL))
        messages: list[Message] = []
        if not topic.channels:
            # The first gets all there is, but what a pause keeps.
            topic.unlogged |= channel.ephemeral and bool(topic.waiting) and not topic.ephemeral
            first = NEVER if topic.stopped_at is None else topic.stopped_at
            messages = topic.waiting + [self.messages[job.id] for job in self.jobs_of(topic.name) if job.id < first]
            topic.waiting = []
        for message in sorted({m.number: m for m in messages}.values(), key=lambda m: m.number):
            # A job whose delay is over may have its place in the order, or come when it is due: now.
            is_over = 0 < message.delay <= self.now - message.published
            channel.take(message, loose=message.number in self.jobs and is_over)
        self._channel_tick(channel)
        topic.channels[name] = channel
        return channel

    def _remove_channel(self, channel: Channel) -> None:
        topic = channel.topic
        for client in list(channel.clients):
            client.channel = None
            client.open = False
        del topic.channels[channel.name]

    def want(self, name: bytes) -> None:
        """Somebody wants its job queue."""
        topic = self.topic(name)
        if topic.wanted:
            return
        topic.wanted = True
        waiting, topic.waiting = topic.waiting, []
        for message in waiting + topic.kept:
            self._make_job(message, topic)
        self._serve()

    def _make_job(self, message: Message, topic: Topic) -> None:
        tube = self._find_or_make(topic.name)
        job = Job(
            message.number, PRIORITY, message.delay, max(message.ttr, SECOND), message.body, tube, message.published
        )
        self.messages[message.number] = message
        self.jobs[job.id] = job
        job.state = "ready"
        if message.delay and message.due > self.now:
            job.state = "delayed"
            job.deadline = message.due
        job.save(self.now)

    def _end(self, topic: Topic) -> None:
        for channel in list(topic.channels.values()):
            self._remove_channel(channel)
        for job in self.jobs_of(topic.name):
            self._remove(job)
            del self.jobs[job.id]
        self.topics[topic.name] = Topic(topic.name, written=topic.written)
        tube = self.tubes.get(topic.name)
        if tube is not None:
            self._forget_if_unused(tube)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _known(self, name: bytes) -> Topic:
        topic = self.topics.get(name)
        if topic is None or not (topic.durable or self.jobs_of(name)):
            raise NotFoundError
        return topic

    def make_topic(self, name: bytes) -> None:
        self._durable(name)

    def make_channel(self, name: bytes, channel: bytes) -> None:
        self._known(name)
        self._channel(self._durable(name), channel)

    def _existing(self, name: bytes, channel_name: bytes) -> Channel:
        topic = self._known(name)
        if channel_name not in topic.channels:
            raise NoChannelError
        return topic.channels[channel_name]

    def delete_topic(self, name: bytes) -> None:
        self._end(self._known(name))

    def delete_channel(self, name: bytes, channel_name: bytes) -> None:
        channel = self._existing(name, channel_name)
        self._remove_channel(channel)
        if channel.topic.ephemeral and not channel.topic.channels:
            self._end(channel.topic)

    def empty_topic(self, name: bytes) -> None:
        """What waits for a channel goes, and what a pause keeps back. Jobs are the job queue's."""
        topic = self._known(name)
        topic.waiting = []
        topic.kept = []

    def empty_channel(self, name: bytes, channel_name: bytes) -> None:
        self._existing(name, channel_name).held = {}

    def pause_topic(self, name: bytes, pause: bool) -> None:
        topic = self._known(name)
        if pause and topic.stopped_at is None:
            topic.stopped_at = self.next_id
        elif not pause:
            topic.stopped_at = None
            kept, topic.kept = topic.kept, []
            for message in kept:
                # What is due when the pause ends comes then, before the others or after some of them.
                self._give(topic, message, loose=0 < message.delay <= self.now - message.published)
            for channel in topic.channels.values():
                self._channel_tick(channel)

    def pause_channel(self, name: bytes, channel_name: bytes, pause: bool) -> None:
        self._existing(name, channel_name).paused = pause

    # --- time -------------------------------------------------------------------------------------------------------

    def next_moment(self) -> int:
        times = [NEVER if (at := self._next_event()) is None else at]
        for topic in self.topics.values():
            for channel in topic.channels.values():
                for delivery in channel.held.values():
                    if delivery.state is State.DEFERRED:
                        times.append(delivery.due)
                    elif delivery.state is State.IN_FLIGHT:
                        times.append(delivery.deadline)
        times += [min(c.beat_at, c.heard + 2 * c.heartbeat) for c in self.clients.values() if c.open]
        return min(times)

    def advance_to(self, now: int) -> None:
        """To a moment at which something is due, or before the next."""
        self.now = max(self.now, now)
        self._tick()
        for topic in self.topics.values():
            for channel in topic.channels.values():
                self._channel_tick(channel)
        for client in [c for c in self.clients.values() if c.open]:
            if self.now >= client.heard + 2 * client.heartbeat:
                self.hang_up(client)
            elif self.now >= client.beat_at:
                client.expected.append(Frame(RESPONSE, HEARTBEAT))
                client.beat_at += client.heartbeat

    def _channel_tick(self, channel: Channel) -> None:
        for delivery in channel.held.values():
            if delivery.state is State.DEFERRED and delivery.due <= self.now:
                self._again(delivery)
            elif delivery.state is State.IN_FLIGHT and delivery.deadline <= self.now:
                channel.timeouts += 1
                self._again(delivery)

    # --- the job queue, where it is not alone -----------------------------------------------------------------------

    def _take_body(self, conn: Conn, job: Job) -> bool:
        if len(conn.input) < conn.body_bytes + 2:
            return False
        topic = self.topic(job.tube.name)
        self.want(topic.name)
        topic.put = topic.written = True
        super()._take_body(conn, job)
        message = Message(job.id, job.body, self.now, job.delay, job.ttr)
        self._enter(topic, message)
        return True

    def _use(self, conn: Conn, args: Arguments) -> None:
        super()._use(conn, args)
        self.use_began.discard(conn.number)
        self.want(conn.use.name)

    def _watch(self, conn: Conn, args: Arguments) -> None:
        super()._watch(conn, args)
        if args.rest == b"default":
            self.watch_began.discard(conn.number)
        self.want(args.rest)

    def _ignore(self, conn: Conn, args: Arguments) -> None:
        super()._ignore(conn, args)
        if not any(tube.name == b"default" for tube in conn.watch):
            self.watch_began.discard(conn.number)

    def _wait(self, conn: Conn, until: int) -> None:
        for tube in conn.watch:
            self.want(tube.name)
        super()._wait(conn, until)

    def _forget_if_unused(self, tube: Tube) -> None:
        topic = self.topics.get(tube.name)
        if topic is not None and topic.durable:
            return
        super()._forget_if_unused(tube)
        if not tube.using and not tube.watching and topic is not None and not topic.written:
            topic.wanted = False

    # --- restarts ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Everything: connections are gone, and what the log knows is there again."""
        self.restart_acceptor()
        super().restart()
        self._recover(self.topics)
        for name, topic in self.topics.items():
            if topic.durable:
                self._find_or_make(name)

    def restart_acceptor(self) -> None:
        """Connections are gone, with what they had in flight and watched."""
        for client in self.clients.values():
            if client.open:
                self.hang_up(client)
        for number in [n for n in self.conns if self.is_open(n)]:
            # Nobody is served who is about to go.
            if self.conns[number].waiting:
                self._stop_waiting(self.conns[number], None)
        self._runnable.clear()
        for number in [n for n in self.conns if self.is_open(n)]:
            self.close(number)
            self.conns[number].output.clear()
        for tube in list(self.tubes.values()):
            self._forget_if_unused(tube)
        self._forget_default()

    def _forget_default(self) -> None:
        """With the connections went all that made it more than any other tube, until the next one comes."""
        topic = self.topic(b"default")
        if topic.durable or any(job.tube.name == b"default" for job in self.jobs.values()):
            return
        del self.tubes[b"default"]
        self._find_or_make(b"default")
        if not topic.written:
            topic.wanted = False

    def restart_worker(self, names: set[bytes]) -> None:
        """The worker of these topics and tubes: connections stay, and it is told again what they do."""
        jobs = [job for job in self.jobs.values() if job.tube.name in names]
        for name in names & self.tubes.keys():
            self.tubes[name].pause_ns = self.tubes[name].unpause_at = 0
            self.tubes[name].buried.clear()
        for job in jobs:
            if job.holder is not None:
                job.holder.reserved.remove(job)
            self._restore(job)
        for name in names & self.tubes.keys():
            self.tubes[name].buried.sort(key=lambda j: (j.saved.at if j.saved else 0, j.id))
        self._recover(names)
        for client in list(self.clients.values()):
            if client.channel is None or client.channel.topic.name not in names:
                continue
            topic, name = client.channel.topic.name, client.channel.name
            client.messages = client.finishes = client.requeues = 0
            client.channel = self._channel(self._durable(topic), name)
            if client not in client.channel.clients:
                client.channel.clients.append(client)
        for conn in [c for c in self.conns.values() if c.open]:
            if conn.use.name in names and conn.number not in self.use_began:
                self.want(conn.use.name)
            for tube in conn.watch:
                is_asked_for = conn.waiting or tube.name != b"default" or conn.number not in self.watch_began
                if tube.name in names and is_asked_for:
                    self.want(tube.name)
        self._serve()
        self._run_woken()

    def _restore(self, job: Job) -> None:
        saved = job.saved
        assert saved is not None
        job.holder = None
        job.pri, job.delay, job.deadline, job.state = saved.pri, saved.delay, saved.deadline, saved.state
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks = saved.counts
        if job.state == "buried":
            job.tube.buried.append(job)
        elif job.state != "delayed" or job.deadline <= self.now:
            job.state = "ready"

    def _recover(self, names: set[bytes] | dict[bytes, Topic]) -> None:
        for name in [n for n in self.topics if n in names]:
            topic = self.topics[name]
            if topic.ephemeral:
                self.topics[name] = Topic(name, written=True)
                if name in self.tubes:
                    self._forget_if_unused(self.tubes[name])
                continue
            if not topic.durable:
                topic.wanted = topic.put
            if topic.rewritten:
                topic.messages = topic.message_bytes = None
                for channel in topic.channels.values():
                    channel.messages = None
            for channel in list(topic.channels.values()):
                channel.requeues = channel.timeouts = channel.delivered = channel.finished = 0
                if channel.ephemeral:
                    del topic.channels[channel.name]
                for delivery in channel.held.values():
                    # What was to come again still is; in which order is not said.
                    if delivery.state in (State.IN_FLIGHT, State.AGAIN):
                        self._again(delivery)
