"""Many commands in one send, and one command in many: frames come whole, in order, to whom they belong."""

from __future__ import annotations

import random
import threading

import pytest

from tests.nsq import frames
from tests.nsq.frames import ERROR, MESSAGE, OK, RESPONSE, Frame, Message, error, parse_message
from tests.nsq.servers import NsqServer
from tests.nsq.wire import MAGIC, Wire, consumer, unique_topic

SOME_ID = b"0123456789abcdef"


def script(topic: str) -> tuple[bytes, list[Frame]]:
    """Every command that needs no message's id, with bodies that look like commands; and the frames it leads to."""
    steps: list[tuple[bytes, list[Frame]]] = [
        (frames.identify(client_id="c", msg_timeout=5000), [OK]),
        (b"NOP\n", []),
        (frames.pub(topic, b"PUB x\n\0\0"), [OK]),
        (frames.mpub(topic, [b"a", b"\n", b"FIN " + SOME_ID]), [OK]),
        (frames.dpub(topic, 3_600_000, b"later"), [OK]),
        (frames.sub(topic, "ch"), [OK]),
        (b"RDY 0\r\n", []),
        (frames.fin(SOME_ID), [error(b"E_FIN_FAILED FIN %s failed ID not in flight" % SOME_ID)]),
        (frames.req(SOME_ID, 5), [error(b"E_REQ_FAILED REQ %s failed ID not in flight" % SOME_ID)]),
        (frames.touch(SOME_ID), [error(b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % SOME_ID)]),
        (b"CLS\n", [Frame(RESPONSE, b"CLOSE_WAIT")]),
        (frames.pub(topic, b"last"), [OK]),
    ]
    return b"".join(command for command, _ in steps), [frame for _, expected in steps for frame in expected]


def test_all_at_once(server: NsqServer, topic: str) -> None:
    commands, expected = script(topic)
    with Wire(server) as wire:
        wire.send(commands)
        assert wire.frames(len(expected)) == expected
        wire.fails("STOP\n", "E_INVALID invalid command STOP")


def test_byte_by_byte(server: NsqServer, topic: str) -> None:
    commands, expected = script(topic)
    with Wire(server, magic=b"") as wire:
        for byte in MAGIC + commands:
            wire.send(bytes([byte]))
        assert wire.frames(len(expected)) == expected
        wire.fails("STOP\n", "E_INVALID invalid command STOP")


@pytest.mark.heavy
def test_cut_at_every_byte(server: NsqServer) -> None:
    """The second piece leaves when the first has surely been read: its answers are there, or a moment has passed."""
    for cut in range(len(MAGIC + script("t")[0])):
        commands, expected = script(unique_topic("t")[:6].ljust(6, "x") + f"{cut:04}")
        data = MAGIC + commands
        with Wire(server, magic=b"") as wire:
            wire.send(data[:cut])
            wire.is_quiet(0.001)
            wire.send(data[cut:])
            assert wire.frames(len(expected)) == expected, f"cut after {data[:cut][-30:]!r}"


@pytest.mark.parametrize("seed", range(3))
def test_random_pieces_of_many_commands(server: NsqServer, topic: str, seed: int) -> None:
    draw = random.Random(seed)
    topics = [f"{topic}-{n}" for n in range(8)]
    bodies: dict[str, list[bytes]] = {name: [] for name in topics}
    commands = bytearray()
    answers = 0
    for n in range(400):
        name = draw.choice(topics)
        sizes = draw.choices([0, 1, 50, 3000, 40_000], k=draw.randint(1, 4))
        batch = [b"%d:%s" % (n, draw.randbytes(length)) for length in sizes]
        kind = draw.randrange(4)
        if kind == 0:
            commands += b"NOP\n"
            continue
        if kind == 1:
            commands += frames.mpub(name, batch)
        else:
            batch = batch[:1]
            commands += frames.pub(name, batch[0]) if kind == 2 else frames.dpub(name, 0, batch[0])
        bodies[name] += batch
        answers += 1
    with Wire(server) as wire:

        def send() -> None:
            at = 0
            while at < len(commands):
                piece = draw.randint(1, 30_000)
                wire.send(bytes(commands[at : at + piece]))
                at += piece

        thread = threading.Thread(target=send)
        thread.start()
        assert wire.frames(answers) == [OK] * answers
        thread.join()
    for name in topics:
        with consumer(server, name, rdy=2500) as reader:
            assert [message.body for message in reader.messages(len(bodies[name]))] == bodies[name]


def test_nothing_after_a_fatal_error_is_done(server: NsqServer, topic: str) -> None:
    with Wire(server) as wire, consumer(server, topic, rdy=10) as reader:
        wire.send(frames.pub(topic, b"before") + b"STOP\n" + frames.pub(topic, b"after"))
        assert wire.frames_until_close() == [OK, error("E_INVALID invalid command STOP")]
        with Wire(server) as other:
            other.publish(topic, b"of another")
        assert [message.body for message in reader.messages(2)] == [b"before", b"of another"]
        assert reader.is_quiet()


def test_what_was_sent_before_leaving_is_done(server: NsqServer, topic: str) -> None:
    with Wire(server) as wire:
        wire.send(b"".join(frames.pub(topic, b"%d" % n) for n in range(500)))
        wire.end_sending()
        assert wire.frames_until_close() == [OK] * 500
    with consumer(server, topic, rdy=500) as reader:
        assert [message.body for message in reader.messages(500)] == [b"%d" % n for n in range(500)]


def test_a_command_cut_off_by_leaving_is_not_done(server: NsqServer, topic: str) -> None:
    command = frames.pub(topic, b"never whole")
    with consumer(server, topic, rdy=10) as reader:
        for cut in range(1, len(command)):
            with Wire(server) as wire:
                wire.send(command[:cut])
                wire.end_sending()
                assert all(frame.kind == ERROR for frame in wire.frames_until_close())
        with Wire(server) as other:
            other.publish(topic, b"whole")
        assert reader.message().body == b"whole"
        assert reader.is_quiet(0.02)


def test_thousands_of_messages_with_finishes_in_batches(server: NsqServer, topic: str) -> None:
    count = 20_000
    with Wire(server) as producer:
        producer.send(
            b"".join(frames.mpub(topic, [b"%d" % n for n in range(at, at + 200)]) for at in range(0, count, 200))
        )
        assert producer.frames(count // 200) == [OK] * (count // 200)
    # More than 10,000 wait, so the real nsqd has put some on disk and gives them in another order.
    with consumer(server, topic, rdy=1000) as wire:
        seen: set[bytes] = set()
        batch: list[Message] = []
        while len(seen) < count:
            message = wire.message()
            assert message.attempts == 1
            seen.add(message.body)
            batch.append(message)
            if len(batch) == 100:
                wire.fin(*batch)
                batch = []
        assert seen == {b"%d" % n for n in range(count)}
        assert wire.is_not_in_flight(message)


def test_answers_and_messages_on_one_connection_keep_whole(server: NsqServer, topic: str) -> None:
    """A connection that publishes to its own channel: frames of both kinds alternate, none is torn."""
    with consumer(server, topic, rdy=50) as wire:
        wire.send(b"".join(frames.pub(topic, b"%d" % n * 100) for n in range(500)))
        answers = 0
        bodies: list[bytes] = []
        while answers < 500 or len(bodies) < 500:
            frame = wire.frame()
            if frame.kind == MESSAGE:
                message = parse_message(frame)
                bodies.append(message.body)
                wire.fin(message)
            else:
                assert frame == OK
                answers += 1
        assert bodies == [b"%d" % n * 100 for n in range(500)]


def test_many_connections_at_once(server: NsqServer, topic: str) -> None:
    producers = [Wire(server) for _ in range(100)]
    consumers = [consumer(server, topic, f"ch{n % 4}", rdy=20) for n in range(100)]
    for n, wire in enumerate(producers):
        wire.send(b"".join(frames.pub(topic, b"%d.%d" % (n, k)) for k in range(5)))
    for wire in producers:
        assert wire.frames(5) == [OK] * 5
    expected = sorted(b"%d.%d" % (n, k) for n in range(100) for k in range(5))
    for channel in range(4):
        found = [message.body for wire in consumers[channel::4] for message in wire.messages(20)]
        assert sorted(found) == expected
    for wire in producers + consumers:
        wire.close()
