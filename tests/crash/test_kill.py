"""kill -9, of everything and of each kind of process, under pipelined load: what was acknowledged stays so."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.beanstalk.replies import Reply
from tests.beanstalk.wire import Wire
from tests.crash.ledger import Client, Ledger
from tests.servers import BEANSTALKD, MANY, SINGLE, Server, Shape, running, shapes, wait_until

LOAD = 1500  # acknowledged commands
RECOVERY_SECONDS = 2.0


def with_workers(workers: int, acceptors: int = 1) -> Shape:
    return Shape(
        f"shards-{workers}x{acceptors}", "mq-shards", ("--workers", str(workers), "--acceptors", str(acceptors))
    )


def under_load(server: Server, ledger: Ledger, seed: int) -> list[Client]:
    """Clients that have worked for a while and go on working."""
    before = ledger.acknowledged
    clients = [Client(server, ledger, seed * 100 + n) for n in range(4)]
    wait_for_load(ledger, before, round(LOAD * random.Random(seed).uniform(0.5, 1.5)))
    return clients


def wait_for_load(ledger: Ledger, before: int, commands: int = LOAD) -> None:
    """However long that takes: a fast machine does not get more to check than a slow one."""
    wait_until(lambda: ledger.acknowledged >= before + commands, f"{commands} more are acknowledged", 30)


@pytest.mark.parametrize("shape", shapes(SINGLE, BEANSTALKD))
def test_what_was_acknowledged_is_there_after_all_processes_were_killed(shape: Shape, tmp_path: Path) -> None:
    """The real beanstalkd is held to the same, if not every time: its log has no checksums, and now and then a kill
    leaves half a job in it."""
    tries = 1 if shape.is_shards else 5
    for attempt in range(tries):
        path = tmp_path / str(attempt)
        path.mkdir()
        try:
            kill_everything_again_and_again(shape, path)
            break
        except AssertionError:
            if attempt == tries - 1:
                raise


def kill_everything_again_and_again(shape: Shape, tmp_path: Path) -> None:
    """With another number of workers after each crash."""
    ledger = Ledger()
    for seed, workers in enumerate([1, 3, 2]):
        with running(with_workers(workers) if shape.is_shards else shape, data_dir=tmp_path) as server:
            if seed:
                ledger.check(server)
            clients = under_load(server, ledger, seed)
            server.kill()
            for client in clients:
                client.stop()
            assert any(client.was_cut_off for client in clients)
    with running(with_workers(1) if shape.is_shards else shape, data_dir=tmp_path) as server:
        ledger.check(server)
        ledger.drain(server)


@pytest.mark.parametrize("shape", shapes(MANY))
def test_sigterm_ends_with_success_and_keeps_everything(shape: Shape, tmp_path: Path) -> None:
    ledger = Ledger()
    with running(shape, data_dir=tmp_path) as server:
        clients = under_load(server, ledger, 7)
        assert server.terminate() == 0
        for client in clients:
            client.stop()
    with running(shape, data_dir=tmp_path) as server:
        ledger.check(server)
        ledger.drain(server)
    with running(shape, data_dir=tmp_path) as server, Wire(server) as wire:
        assert wire.stats()["current-jobs-ready"] == "0"


@pytest.mark.parametrize("memory", [False, True], ids=["disk", "memory"])
@pytest.mark.parametrize("shape", shapes(MANY))
def test_a_killed_worker_drops_no_connection_and_loses_nothing(shape: Shape, memory: bool, tmp_path: Path) -> None:
    ledger = Ledger()
    with running(shape, data_dir=None if memory else tmp_path) as server:
        clients = [Client(server, ledger, n, outages=True) for n in range(4)]
        for worker in (1, 0, 2):
            wait_for_load(ledger, ledger.acknowledged)
            before = server.pid_of(f"mq-worker-{worker}")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda w=worker, pid=before: is_back(server, f"mq-worker-{w}", pid), "the worker is back")
        wait_for_load(ledger, ledger.acknowledged)
        for client in clients:
            client.stop()
            assert not client.was_cut_off
        check_after_outage(ledger, server)


def check_after_outage(ledger: Ledger, server: Server) -> None:
    with Wire(server) as wire:
        wait_until(lambda: wire.stats()["current-connections"] == "1", "the clients are gone")
    ledger.check(server)
    ledger.drain(server)


def is_back(server: Server, comm: str, before: int) -> bool:
    try:
        return server.pid_of(comm) != before
    except LookupError:
        return False


@pytest.mark.parametrize("shape", shapes(MANY))
def test_all_tubes_are_served_soon_after_a_worker_was_killed(shape: Shape) -> None:
    """Those of the other workers all the time, those of the killed one within two seconds, if the machine has time."""
    outages = []
    tubes = [f"outage-{n}" for n in range(30)]
    with running(shape) as server, Wire(server) as wire, Wire(server) as waiter:
        jobs = {}
        for tube in tubes:
            wire.use(tube)
            jobs[tube] = wire.put(tube.encode())
        waiter.watch_only("outage-waited-for", "outage-too")
        waiter.send(b"reserve\r\n")
        wire.use("outage-waited-for")
        wire.wait_for_stats_tube("outage-waited-for", current_waiting=1)
        for worker in range(3):
            killed_at = time.monotonic()
            os.kill(server.pid_of(f"mq-worker-{worker}"), signal.SIGKILL)
            for tube in tubes:
                wire.use(tube)
                wait_until(lambda tube=tube: wire.ask("peek-ready").startswith(b"FOUND"), f"{tube} is served")
            outages.append(time.monotonic() - killed_at)
            for tube, job in jobs.items():
                assert wire.exchange(f"peek {job}") == Reply(b"FOUND %d %d" % (job, len(tube)), tube.encode())
                fields = wire.stats_tube(tube)
                assert fields["current-using"] == ("1" if tube == tubes[-1] else "0"), "the worker was told who uses it"
        assert min(outages) < RECOVERY_SECONDS, outages
        wire.use("outage-waited-for")
        job = wire.put(b"at last")
        assert waiter.reply() == Reply(b"RESERVED %d 7" % job, b"at last"), "a reserve waits on over an outage"


@pytest.mark.parametrize("shape", shapes(MANY))
def test_what_a_killed_workers_clients_held_is_ready_again(shape: Shape) -> None:
    with running(shape) as server, Wire(server) as holder, Wire(server) as other:
        tubes = [f"held-{n}" for n in range(30)]
        holder.watch_only(*tubes)
        jobs = set()
        for tube in tubes:
            holder.use(tube)
            jobs.add(holder.put(b""))
        assert {holder.reserve()[0] for _ in tubes} == jobs
        os.kill(server.pid_of("mq-worker-1"), signal.SIGKILL)
        other.watch_only(*tubes)

        def states() -> list[str]:
            return [wire_state(other, job) for job in sorted(jobs)]

        wait_until(lambda: "ready" in states() and "unknown" not in states(), "some are ready")
        given_back = {job for job in jobs if wire_state(other, job) == "ready"}
        assert {other.reserve()[0] for _ in given_back} == given_back
        assert other.ask("reserve-with-timeout 0") == b"TIMED_OUT"
        for job in jobs:
            assert holder.ask(f"touch {job}") == (b"NOT_FOUND" if job in given_back else b"TOUCHED")
            assert (other if job in given_back else holder).ask(f"delete {job}") == b"DELETED"


def wire_state(wire: Wire, job: int) -> str:
    reply = wire.exchange(f"stats-job {job}")
    return "unknown" if reply.body is None else reply.body.decode().split("state: ")[1].split("\n")[0]


@pytest.mark.parametrize("shape", shapes(SINGLE, MANY))
def test_a_killed_acceptor_gives_back_what_its_connections_held(shape: Shape) -> None:
    with running(shape) as server:
        wires = [Wire(server) for _ in range(12)]
        held = {}
        for wire in wires:
            wire.use("acceptor-killed")
            wire.watch_only("acceptor-killed")
            wire.put(b"")
        for wire in wires:
            held[wire] = wire.reserve()[0]
        before = server.pid_of("mq-acceptor-0")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: is_back(server, "mq-acceptor-0", before), "the acceptor is back")
        cut_off = {wire for wire in wires if is_cut_off(wire)}
        assert cut_off
        if "--acceptors" not in shape.options:
            assert cut_off == set(wires)
        with Wire(server) as wire:
            wire.wait_for_stats_tube("acceptor-killed", current_jobs_ready=len(cut_off),
                                     current_jobs_reserved=len(wires) - len(cut_off))  # fmt: skip
            wire.watch_only("acceptor-killed")
            given_back = {held[w] for w in cut_off}
            assert {wire.reserve()[0] for _ in cut_off} == given_back
            for w in set(wires) - cut_off:
                assert w.ask(f"delete {held[w]}") == b"DELETED"
            for job in given_back:
                assert wire.ask(f"delete {job}") == b"DELETED"


def is_cut_off(wire: Wire) -> bool:
    try:
        wire.ask("list-tube-used")
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("shape", shapes(MANY))
def test_killing_processes_again_and_again_under_load_loses_nothing(shape: Shape, tmp_path: Path) -> None:
    """A worker, then an acceptor, while clients that are cut off connect again."""
    ledger = Ledger()
    over = threading.Event()
    failures: list[BaseException] = []

    def work(server: Server, seed: int) -> None:
        try:
            while not over.is_set():
                client = Client(server, ledger, seed, outages=True)
                while client._thread.is_alive() and not over.is_set():
                    time.sleep(0.02)
                client.stop()
                seed += 10
        except ConnectionError:
            if not over.is_set():
                work(server, seed + 1000)
        except BaseException as error:
            failures.append(error)

    with running(shape, data_dir=tmp_path) as server:
        threads = [threading.Thread(target=work, args=(server, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for victim in ("mq-worker-2", "mq-acceptor-1", "mq-worker-0", "mq-acceptor-0"):
            wait_for_load(ledger, ledger.acknowledged)
            before = server.pid_of(victim)
            os.kill(before, signal.SIGKILL)
            wait_until(lambda v=victim, pid=before: is_back(server, v, pid), f"{victim} is back")
        wait_for_load(ledger, ledger.acknowledged)
        over.set()
        for thread in threads:
            thread.join(60)
        assert not failures, failures
        check_after_outage(ledger, server)
