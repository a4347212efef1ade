"""A reserve over several workers takes the most urgent message, once."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptor.bench import (
    CANCEL,
    CANCELLED,
    DEADLINE_SOON,
    DELETE,
    GONE,
    NONE,
    NONE_IN_FLIGHT,
    OK,
    PROBE,
    RESERVE,
    RETURN,
    SECOND,
    SHARDS,
    TAKE,
    TIMED_OUT,
    Bench,
    Client,
    FakeWorker,
    Request,
)


def probes(bench: Bench, *workers: int) -> list[Request]:
    found = [bench.one(worker) for worker in workers]
    assert all(request.kind == PROBE for request in found)
    return found


def test_a_gather_takes_the_most_urgent_and_bounds_it_by_the_second(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\ndelete 1\r\n")
    here, there = probes(trio, 0, 1)
    assert trio.take(2) == []
    trio.answer(0, here, OK, pri=5, id=80)
    trio.answer(1, there, OK, pri=5, id=73)
    take = trio.one(1)
    assert (take.kind, take.pri, take.id) == (TAKE, 5, 80)
    assert trio.take(0) == [], "nothing goes on before the reserve is over"
    trio.answer(1, take, OK, id=73, body=b"b")
    assert watcher.received() == b"RESERVED 73 1\r\nb\r\n"
    assert trio.one(1).kind == DELETE


def test_a_gather_without_a_second_takes_whatever_there_is(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 0\r\n")
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, NONE)
    trio.answer(1, there, OK, pri=9, id=73)
    take = trio.one(1)
    assert (take.kind, take.pri, take.id) == (TAKE, (1 << 32) - 1, (1 << 64) - 1)


def test_a_gather_begins_anew_when_somebody_was_faster(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 0\r\n")
    for _ in range(3):
        here, there = probes(trio, 0, 1)
        trio.answer(1, there, OK, pri=1, id=73)
        trio.answer(0, here, OK, pri=2, id=80)
        take = trio.one(1)
        assert (take.pri, take.id) == (2, 80)
        trio.answer(1, take, NONE)
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, NONE)
    trio.answer(1, there, NONE)
    assert watcher.received() == b"TIMED_OUT\r\n"
    assert trio.counters()["waiting"] == 0


def start_waiting(bench: Bench, *workers: int) -> list[Request]:
    for worker, probe in zip(workers, probes(bench, *workers), strict=True):
        bench.worker[worker].answer(probe, NONE, flags=NONE_IN_FLIGHT)
    bench.turn()
    found = [bench.one(worker) for worker in workers]
    assert all(request.kind == RESERVE for request in found)
    return found


def test_of_two_deliveries_the_second_is_returned(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 9\r\ndelete 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    assert here.delay_ns == there.delay_ns == 9 * SECOND
    assert trio.counters()["waiting"] == 1
    trio.worker[0].answer(here, OK, id=80, body=b"first")
    trio.worker[1].answer(there, OK, id=73, body=b"second")
    trio.turn()
    assert watcher.received() == b"RESERVED 80 5\r\nfirst\r\n"
    # Heard of in one turn, so it was cancelled in vain.
    cancel, returned, delete = trio.take(1)
    assert (cancel.kind, cancel.slot) == (CANCEL, there.slot)
    assert (returned.kind, returned.id, returned.conn) == (RETURN, 73, watcher.number)
    assert delete.kind == DELETE
    assert trio.take(0) == []


def test_the_losers_are_cancelled_and_waited_for(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\ndelete %d\r\n" % trio.id_at(0))
    here, there = start_waiting(trio, 0, 1)
    trio.answer(1, there, OK, id=73, body=b"x")
    assert watcher.received() == b"RESERVED 73 1\r\nx\r\n", "at once"
    assert trio.one(0).kind == CANCEL
    trio.answer(0, here, CANCELLED, flags=NONE_IN_FLIGHT)
    assert trio.one(0).kind == DELETE


@pytest.mark.parametrize(("status", "reply"), [(TIMED_OUT, b"TIMED_OUT\r\n"), (DEADLINE_SOON, b"DEADLINE_SOON\r\n")])
def test_the_end_of_the_wait_at_one_worker_ends_it_at_all(
    trio: Bench, watcher: Client, status: int, reply: bytes
) -> None:
    watcher.send(b"reserve-with-timeout 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    trio.answer(0, here, status)
    assert watcher.received() == b""
    assert trio.one(1).kind == CANCEL
    trio.answer(1, there, CANCELLED)
    assert watcher.received() == reply


def test_a_delivery_wins_over_the_end_of_the_wait(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    trio.answer(0, here, TIMED_OUT)
    trio.answer(1, there, OK, id=73, body=b"late")
    assert watcher.received() == b"RESERVED 73 4\r\nlate\r\n"
    assert [request.kind for request in trio.take(1)] == [CANCEL], "and nothing is returned"


def test_a_worker_that_holds_something_is_asked_about_deadlines(trio: Bench) -> None:
    client = trio.quiet_client(trio.name_at(0))
    held = trio.id_at(2)
    client.send(b"reserve-job %d\r\n" % held)
    trio.answer(2, trio.one(2), OK, id=held, body=b"")
    client.received()
    client.send(b"reserve\r\n")
    here, there = probes(trio, 0, 2)
    trio.answer(0, here, NONE)
    trio.answer(2, there, DEADLINE_SOON)
    assert client.received() == b"DEADLINE_SOON\r\n"
    client.send(b"delete %d\r\n" % held)
    trio.answer(2, trio.one(2), OK, flags=NONE_IN_FLIGHT)
    client.send(b"reserve\r\n")
    assert trio.one(0).kind == RESERVE, "it holds nothing any more, so one worker is enough"
    assert trio.take(2) == []


def test_a_reserve_behind_a_reserve_job_knows_what_that_brought(trio: Bench) -> None:
    """In one packet: which workers hold something is known when the reserve-job is answered."""
    client = trio.quiet_client(trio.name_at(0))
    held = trio.id_at(2)
    client.send(b"reserve-job %d\r\nreserve\r\n" % held)
    assert trio.take(0) == [], "where to reserve is not decided yet"
    trio.answer(2, trio.one(2), OK, id=held, body=b"x")
    here, there = probes(trio, 0, 2)
    trio.answer(0, here, NONE)
    trio.answer(2, there, DEADLINE_SOON)
    assert client.received() == b"RESERVED %d 1\r\nx\r\nDEADLINE_SOON\r\n" % held


def test_a_reserve_behind_a_reserve_job_whose_worker_dies_goes_on(trio: Bench) -> None:
    client = trio.quiet_client(trio.name_at(0))
    client.send(b"reserve-job %d\r\nreserve-with-timeout 0\r\n" % trio.id_at(2))
    trio.one(2)
    trio.acceptor.peer_gone(2)
    trio.turn()
    assert trio.one(0).kind == RESERVE


def test_a_job_that_is_ready_is_better_than_a_deadline(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, DEADLINE_SOON)
    trio.answer(1, there, OK, pri=1, id=73)
    assert trio.one(1).kind == TAKE


def test_a_client_that_leaves_in_a_gather_is_gone_everywhere(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    start_waiting(trio, 0, 1)
    watcher.socket.shutdown(socket.SHUT_RDWR)
    watcher.socket.close()
    trio.turn()
    for worker in (0, 1):
        kinds = [request.kind for request in trio.take(worker)]
        assert CANCEL in kinds or GONE in kinds


@dataclass
class SimulatedWorker:
    """A queue, and clients that wait: just enough of a worker for reserves. Acts on one message at a time."""

    fake: FakeWorker
    ready: list[tuple[int, int]]
    inbox: deque[Request] = field(default_factory=deque)
    waiting: list[Request] = field(default_factory=list)
    given: dict[int, tuple[int, int]] = field(default_factory=dict)
    returned: int = 0

    def collect(self) -> None:
        self.inbox.extend(self.fake.take())

    def step(self) -> bool:
        if not self.inbox:
            return False
        request = self.inbox.popleft()
        if request.kind == PROBE:
            if self.ready:
                pri, id = min(self.ready)
                self.fake.answer(request, OK, pri=pri, id=id)
            else:
                self.fake.answer(request, NONE, flags=NONE_IN_FLIGHT)
        elif request.kind == TAKE:
            if self.ready and min(self.ready) <= (request.pri, request.id):
                self.give(request)
            else:
                self.fake.answer(request, NONE)
        elif request.kind == RESERVE:
            if self.ready:
                self.give(request)
            elif request.delay_ns == 0:
                self.fake.answer(request, TIMED_OUT)
            else:
                self.waiting.append(request)
        elif request.kind == CANCEL:
            for waiter in [w for w in self.waiting if (w.conn, w.slot) == (request.conn, request.slot)]:
                self.waiting.remove(waiter)
                self.fake.answer(waiter, CANCELLED)
        elif request.kind == RETURN:
            self.returned += 1
            self.add(self.given.pop(request.id))
        return True

    def give(self, request: Request) -> None:
        job = min(self.ready)
        self.ready.remove(job)
        self.given[job[1]] = job
        self.fake.answer(request, OK, pri=job[0], id=job[1], body=b"%d" % job[1])

    def add(self, job: tuple[int, int]) -> None:
        self.ready.append(job)
        if self.waiting:
            self.give(self.waiting.pop(0))

    def time_out(self) -> None:
        if self.waiting:
            self.fake.answer(self.waiting.pop(0), TIMED_OUT)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_job_goes_to_one_client_and_every_reserve_has_one_reply(data: st.DataObject) -> None:
    bench = Bench(workers=3)
    names = [bench.name_at(worker) for worker in range(3)]
    clients = [bench.quiet_client(*data.draw(st.sampled_from([names, names[:2], names[1:]]))) for _ in range(3)]
    workers = [SimulatedWorker(fake, []) for fake in bench.worker]
    asked = [0] * len(clients)
    heard: list[list[bytes]] = [[] for _ in clients]
    added = 0

    def settle(turns: int) -> None:
        for _ in range(turns):
            bench.turn(1)
            for worker in workers:
                worker.collect()
        for i, client in enumerate(clients):
            heard[i] += [line for line in client.received().split(b"\r\n") if line and not line.isdigit()]

    for _ in range(data.draw(st.integers(1, 60))):
        action = data.draw(st.integers(0, 9))
        which = data.draw(st.integers(0, 2))
        if action == 0 and asked[which] < 8:
            asked[which] += 1
            clients[which].socket.send(b"reserve-with-timeout %d\r\n" % data.draw(st.integers(0, 1)))
        elif action == 1:
            added += 1
            workers[which].add((data.draw(st.integers(0, 2)), added * SHARDS + which))
        elif action == 2:
            workers[which].time_out()
        elif action < 6:
            settle(1)
        else:
            workers[which].step()
    for _ in range(1000):
        settle(1)
        if sum(worker.step() for worker in workers) == 0:
            for worker in workers:
                worker.time_out()
            if not any(worker.waiting or worker.inbox for worker in workers) and [len(h) for h in heard] == asked:
                break
    assert [len(lines) for lines in heard] == asked
    delivered = [int(line.split()[1]) for lines in heard for line in lines if line.startswith(b"RESERVED")]
    assert sorted(delivered) == sorted(id for worker in workers for id in worker.given)
    assert len(delivered) == len(set(delivered))
    assert len(delivered) + sum(len(worker.ready) for worker in workers) == added
    bench.close()
