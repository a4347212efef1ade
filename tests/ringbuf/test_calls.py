"""Calls between an acceptor and the gateway: whoever asks is answered, whatever the other side does."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from mq_shards.acceptor.watched import Watched
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.ringbuf import calls as calls_module
from mq_shards.ringbuf.calls import FOREVER, MESSAGE_BYTES, PIECE_BYTES, UNDER_WAY, Asked, Calls, Reply, Status

OK: Final = Status.OK
UNAVAILABLE: Final = Status.UNAVAILABLE


def is_ready(fd: int, timeout_ms: int | None) -> bool:
    """By poll, which takes any descriptor: a long run of tests has many."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


class Two:
    """Both ends in one process, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.watched = Watched(), Watched()
        self.here, self.there = (Calls(watched, lambda: self.now_ns) for watched in self.watched)
        self.replies: dict[int, Reply] = {}

    def join(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.here.attach(here)
        self.there.attach(there)

    def ask(self, what: str, body: bytes = b"", *, again: bool = False) -> int:
        numbers: list[int] = []
        number = self.here.ask(what, body, lambda reply: self.replies.__setitem__(numbers[0], reply), again=again)
        numbers.append(number)
        return number

    def run(self) -> None:
        """Until neither has anything to do."""
        while any(is_ready(watched.fileno(), 0) for watched in self.watched):
            for watched in self.watched:
                watched.run()
        for end in (self.here, self.there):
            end.expire()

    def close(self) -> None:
        for end, watched in zip((self.here, self.there), self.watched, strict=True):
            end.close()
            watched.close()


@pytest.fixture
def two() -> Iterator[Two]:
    two = Two()
    yield two
    two.close()


def test_how_long_nobody_has_been_there_is_known(two: Two) -> None:
    two.now_ns += 5
    assert two.here.absent_ns == 5
    two.join()
    two.now_ns += 5
    assert two.here.absent_ns == 0
    two.there.detach()
    two.run()
    two.now_ns += 7
    assert two.here.absent_ns == 7


def test_who_cannot_wait_until_the_other_side_is_due_hears_so_at_once(two: Two) -> None:
    two.join()
    two.there.serve("double", lambda asked: asked.answer(asked.body * 2))
    first = two.ask("double", b"a", again=True)  # for 5 s
    two.here.due(int(6e9))
    assert two.here.absent_ns == -6e9
    two.here.expire()
    assert two.replies == {first: Reply(UNAVAILABLE)}
    two.here.due(int(4e9))
    second = two.ask("double", b"b")
    two.now_ns += int(4e9)
    assert two.here.absent_ns == 0
    two.here.expire()
    assert second not in two.replies
    two.join()
    two.run()
    assert two.replies[second] == Reply(OK, b"bb")


def test_a_question_is_answered_on_both_sides(two: Two) -> None:
    two.join()
    two.there.serve("double", lambda asked: asked.answer(asked.body * 2))
    two.here.serve("reverse", lambda asked: asked.answer(asked.body[::-1]))
    number = two.ask("double", b"ab\n\0")
    heard: list[Reply] = []
    two.there.ask("reverse", b"abc", heard.append)
    assert not two.replies, "never before ask() has returned"
    two.run()
    assert two.replies == {number: Reply(OK, b"ab\n\0ab\n\0")}
    assert heard == [Reply(OK, b"cba")]
    assert two.here.wait_ns() == FOREVER or two.here.wait_ns() > 0


def test_what_nobody_answers_and_what_fails_is_said(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.join()

    def fail(asked: Asked) -> None:
        raise ZeroDivisionError

    two.there.serve("fail", fail)
    unknown, failed, large = two.ask("nothing"), two.ask("fail"), two.ask("fail", bytes(MESSAGE_BYTES))
    two.run()
    assert two.replies[unknown].status is Status.UNKNOWN
    assert two.replies[failed].status is Status.FAILED
    assert two.replies[large].status is Status.TOO_LARGE
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_or_a_fact_that_cannot_be_handled_is_said_and_ends_nothing(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    two.join()

    def fail(what: object) -> None:
        raise ZeroDivisionError

    two.there.serve("double", lambda asked: asked.answer(asked.body * 2))
    two.here.ask("double", b"a", fail)
    two.there.hear("fact", fail)
    two.here.tell("fact", b"b")
    number = two.ask("double", b"c")
    two.run()
    assert two.replies == {number: Reply(OK, b"cc")}
    assert "cannot handle the answer to double" in caplog.text and "cannot handle what is told: fact" in caplog.text


def test_an_answer_that_is_too_large_is_no_answer_but_said(two: Two) -> None:
    two.join()
    two.there.serve("much", lambda asked: asked.answer(bytes(MESSAGE_BYTES)))
    number = two.ask("much")
    two.run()
    assert two.replies == {number: Reply(Status.TOO_LARGE)}


def test_large_messages_come_whole_and_small_ones_do_not_wait_for_them(two: Two) -> None:
    two.join()
    body = os.urandom(40 * PIECE_BYTES + 17)
    order = []
    two.there.serve("echo", lambda asked: (order.append(len(asked.body)), asked.answer(asked.body))[0])
    large, small = two.ask("echo", body), two.ask("echo", b"small")
    two.run()
    assert two.replies[large] == Reply(OK, body)
    assert two.replies[small] == Reply(OK, b"small")
    assert order == [5, len(body)], "the small one was there first"


def test_who_is_not_answered_in_time_is_told_so_and_a_late_answer_is_nothing(two: Two) -> None:
    two.join()
    kept: list[Asked] = []
    two.there.serve("slow", kept.append)
    number = two.ask("slow")
    two.run()
    assert not two.replies
    two.now_ns += two.here.wait_ns()
    two.run()
    assert two.replies == {number: Reply(UNAVAILABLE)}
    kept[0].answer(b"late")
    kept[0].answer(b"and twice")
    two.run()
    assert two.replies == {number: Reply(UNAVAILABLE)}


def test_nobody_there_is_an_answer_after_the_time_and_who_comes_before_is_asked(two: Two) -> None:
    two.there.serve("echo", lambda asked: asked.answer(asked.body))
    first = two.ask("echo", b"1")
    two.run()
    assert not two.replies
    two.now_ns += calls_module.TIMEOUT_NS
    two.run()
    assert two.replies == {first: Reply(UNAVAILABLE)}
    second = two.ask("echo", b"2")
    two.join()
    two.run()
    assert two.replies[second] == Reply(OK, b"2")


def test_where_there_is_no_gateway_nobody_waits() -> None:
    watched = Watched()
    alone = Calls(watched, lambda: 1, expected=False)
    heard: list[Reply] = []
    alone.ask("anything", b"", heard.append)
    assert alone.wait_ns() == 0
    alone.expire()
    assert heard == [Reply(UNAVAILABLE)]
    watched.close()


def test_when_the_other_side_ends_all_is_answered_but_what_can_be_asked_again(two: Two) -> None:
    two.join()
    kept: list[Asked] = []
    two.there.serve("keep", kept.append)
    once, again = two.ask("keep", b"once"), two.ask("keep", b"again", again=True)
    two.run()
    two.there.detach()
    two.run()
    assert two.replies == {once: Reply(UNAVAILABLE)}
    two.join()
    two.run()
    assert [asked.body for asked in kept] == [b"once", b"again", b"again"]
    kept[0].answer(b"to nobody")
    kept[1].answer(b"of a life before")
    kept[2].answer(b"yes")
    two.run()
    assert two.replies == {once: Reply(UNAVAILABLE), again: Reply(OK, b"yes")}


def test_the_number_of_questions_is_limited_on_both_sides(two: Two) -> None:
    two.join()
    kept: list[Asked] = []
    two.there.serve("keep", kept.append)
    numbers = [two.ask("keep") for _ in range(UNDER_WAY + 5)]
    two.run()
    assert set(two.replies) == set(numbers[UNDER_WAY:])
    assert all(reply.status is UNAVAILABLE for reply in two.replies.values())
    two.now_ns += calls_module.TIMEOUT_NS
    two.run()
    late = two.ask("keep")  # those before are still being served there, though nobody waits for them
    two.run()
    assert two.replies[late].status is UNAVAILABLE
    kept[0].answer(b"")
    two.run()
    two.ask("keep")
    two.run()
    assert len(kept) == UNDER_WAY + 1


def test_bytes_that_are_not_taken_are_limited(two: Two) -> None:
    two.join()
    two.there.serve("size", lambda asked: asked.answer(str(len(asked.body)).encode()))
    body = bytes(MESSAGE_BYTES // 2)
    numbers = [two.ask("size", body) for _ in range(8)]
    two.run()
    taken = [number for number in numbers if two.replies[number].ok]
    assert 2 <= len(taken) < 8
    assert all(two.replies[number].status is UNAVAILABLE for number in set(numbers) - set(taken))
    number = two.ask("size", body)
    two.run()
    assert two.replies[number].ok, "what was taken is given back"


def test_what_is_told_is_heard_in_order_and_what_was_lost_is_said(two: Two) -> None:
    told: list[bytes] = []
    lost: list[int] = []
    two.there.hear("fact", told.append)
    two.there.on_lost(lambda: lost.append(len(told)))
    two.here.tell("fact", b"to nobody")
    two.join()
    assert lost == [0]
    two.here.tell("unheard", b"")
    for i in range(100):
        two.here.tell("fact", b"%d" % i)
    two.run()
    assert told == [b"%d" % i for i in range(100)]
    assert lost == [0]
    for _ in range(100):
        two.here.tell("fact", bytes(1 << 20))
    two.run()
    assert len(told) < 200
    assert lost == [0, len(told)]
    two.here.tell("fact", b"afterwards")
    two.run()
    assert told[-1] == b"afterwards"


def test_what_was_told_at_last_is_heard_though_who_told_it_had_not_read_all(two: Two) -> None:
    told: list[bytes] = []
    two.there.hear("fact", told.append)
    two.join()
    two.there.tell("fact", b"unread")
    two.here.tell("fact", b"at last")
    two.here.detach()
    two.run()
    assert told == [b"at last"]


def test_what_no_end_of_ours_sends_ends_the_connection(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    for packet in (b"x", b"\x01\x01\0\0\x01\0\0\0no name", b"\x02\x01\0\0\x01\0\0\0", b"\x09\x01\0\0\0\0\0\0a\n"):
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        two.here.attach(here)
        there.send(packet)
        two.run()
        assert not two.here.connected
        assert there.recv(10) == b""
        there.close()
    assert caplog.text.count("this end is closed") == 4


# --- processes --------------------------------------------------------------------------------------------------------


def forked(serve: Callable[[Calls], None]) -> tuple[int, socket.socket]:
    """A process with the other end; it answers until it is killed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        here.close()
        watched = Watched()
        end = Calls(watched, time.monotonic_ns)
        serve(end)
        end.attach(there)
        while end.connected:
            is_ready(watched.fileno(), None)
            watched.run()
        os._exit(0)
    there.close()
    return pid, here


def test_a_killed_and_a_stopped_process_are_answers_in_the_gateway() -> None:
    def serve(end: Calls) -> None:
        end.serve("pid", lambda asked: asked.answer(str(os.getpid()).encode()))
        end.serve("never", lambda asked: None)

    async def ask() -> None:
        calls = AcceptorCalls(2)
        pid, sock = forked(serve)
        calls.attach(0, sock.detach())
        assert await calls.ask(0, "pid") == Reply(OK, b"%d" % pid)
        never = asyncio.create_task(calls.ask(0, "never", timeout_ns=60_000_000_000))
        assert (await calls.ask_all("pid", timeout_ns=50_000_000))[1] == Reply(UNAVAILABLE), "nobody was ever there"
        os.kill(pid, signal.SIGSTOP)
        assert await calls.ask(0, "pid", timeout_ns=50_000_000) == Reply(UNAVAILABLE)
        calls.hang([0])
        async with asyncio.timeout(10):
            hangs = await calls.ask(0, "pid", timeout_ns=60_000_000_000, again=True)
        assert hangs == Reply(UNAVAILABLE), "who only looks does not wait for it"
        calls.hang([])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert await never == Reply(UNAVAILABLE)
        asked = asyncio.create_task(calls.ask(0, "pid"))
        await asyncio.sleep(0)
        pid, sock = forked(serve)
        calls.attach(0, sock.detach())
        assert await asked == Reply(OK, b"%d" % pid), "who comes in time is asked"
        calls.close()
        os.waitpid(pid, 0)

    asyncio.run(ask())


def test_the_gateway_serves_what_acceptors_ask() -> None:
    async def serve() -> None:
        calls = AcceptorCalls(1)

        async def slow(acceptor: int, body: bytes) -> bytes:
            await asyncio.sleep(0)
            if body == b"fail":
                raise ZeroDivisionError
            return b"%d: " % acceptor + body

        calls.serve("slow", slow)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        calls.attach(0, there.detach())
        watched = Watched()
        end = Calls(watched, time.monotonic_ns)
        end.attach(here)
        told: list[bytes] = []
        end.hear("fact", told.append)
        heard: list[Reply] = []
        end.ask("slow", b"x", heard.append)
        end.ask("slow", b"fail", heard.append)
        calls.tell("fact", b"y")
        while len(heard) < 2 or not told:
            watched.run()
            await asyncio.sleep(0.001)
        assert heard == [Reply(OK, b"0: x"), Reply(Status.FAILED)]
        assert told == [b"y"]
        end.close()
        watched.close()
        calls.close()

    asyncio.run(serve())
