"""What time does: time to run, its last second, delays, pauses, and how long a reserve waits.

Waiting is shared: all scenarios of all servers run at the same time, each on connections and tubes of its own.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.beanstalk.replies import Reply
from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import SHAPES, Server, Shape, running, shapes

# Nothing may come early, beyond what reading two clocks can differ; a busy machine makes things late. If it is too busy
# for that, and only then, a scenario that is played again succeeds.
EARLY = 0.02
LATE = 0.9
TRIES = 3

Scenario = Callable[["Scene"], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


class Scene:
    """A tube, and connections that use and watch only it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tube = unique_tube("timing")
        self.since = time.monotonic()

    def wire(self, *tubes: str) -> Wire:
        wire = Wire(self.server, reply_seconds=10)
        wire.use(tubes[0] if tubes else self.tube)
        wire.watch_only(*(tubes or (self.tube,)))
        return wire

    def start(self) -> None:
        self.since = time.monotonic()

    def passed(self, seconds: float) -> None:
        """That much has passed since start()."""
        took = time.monotonic() - self.since
        assert seconds - EARLY <= took <= seconds + LATE, f"after {took:.3f} s where {seconds} s belong"

    def reply_to(self, waiter: Wire, holder: Wire) -> Reply:
        """What `waiter` waits for until the time of `holder`, which is idle, is over.

        beanstalkd forgets a time to run that it finds over in the very microsecond in which it ends, until the
        connection does something; so there the holder must not be idle.
        """
        if self.server.shape.is_shards:
            return waiter.reply()
        for _ in range(100):
            holder.ask("list-tube-used")
            with contextlib.suppress(TimeoutError):
                return waiter.reply(0.04)
        raise TimeoutError

    def sleep_until(self, seconds: float) -> None:
        time.sleep(max(0.0, self.since + seconds - time.monotonic()))


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[tuple[Shape, str], Future[None]]]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running(shape)) for shape in SHAPES if shape.missing is None]
        pool = stack.enter_context(ThreadPoolExecutor(len(servers) * len(SCENARIOS)))
        yield {(server.shape, name): pool.submit(play, name, server) for server in servers for name in SCENARIOS}
        for server in servers:
            assert server.process.poll() is None, f"the server died:\n{server.said()}"


def play(name: str, server: Server) -> None:
    """A failure that is not repeated is said in the run's summary."""
    for _ in range(TRIES - 1):
        try:
            return SCENARIOS[name](Scene(server))
        except (AssertionError, OSError) as failure:  # a time-out is an OSError
            warnings.warn(f"{name} is played again on {server.shape.name}, after {failure!r}", stacklevel=2)
    return SCENARIOS[name](Scene(server))


@scenario
def a_job_whose_time_is_over_is_ready_for_others(scene: Scene) -> None:
    holder, waiter = scene.wire(), scene.wire()
    job = holder.put(b"x", pri=7, ttr=2)
    scene.start()
    holder.reserve()
    waiter.send(b"reserve\r\n")
    assert scene.reply_to(waiter, holder).number == job
    scene.passed(2)
    stats = waiter.stats_job(job)
    assert (stats["timeouts"], stats["reserves"], stats["state"], stats["pri"]) == ("1", "2", "reserved", "7")
    for command in (f"delete {job}", f"release {job} 0 0", f"bury {job} 0", f"touch {job}"):
        assert holder.ask(command) == b"NOT_FOUND"
    assert int(waiter.stats()["job-timeouts"]) >= 1
    assert waiter.ask(f"delete {job}") == b"DELETED"


@scenario
def a_ttr_of_0_is_one_second(scene: Scene) -> None:
    holder, waiter = scene.wire(), scene.wire()
    job = holder.put(b"x", ttr=0)
    scene.start()
    holder.reserve()
    waiter.send(b"reserve\r\n")
    assert scene.reply_to(waiter, holder).number == job
    scene.passed(1)


@scenario
def touch_starts_the_time_to_run_anew(scene: Scene) -> None:
    holder, waiter = scene.wire(), scene.wire()
    job = holder.put(b"x", ttr=2)
    holder.reserve()
    waiter.send(b"reserve\r\n")
    for _ in range(2):
        time.sleep(1.2)
        scene.start()
        assert holder.ask(f"touch {job}") == b"TOUCHED"
    assert int(holder.stats_job(job)["time-left"]) in (1, 2)
    assert scene.reply_to(waiter, holder).number == job
    scene.passed(2)
    assert waiter.stats_job(job)["timeouts"] == "1"


@scenario
def a_reserve_in_the_last_second_is_told_at_once(scene: Scene) -> None:
    wire = scene.wire()
    job = wire.put(b"x", ttr=1)
    wire.reserve()
    scene.start()
    assert wire.ask("reserve") == b"DEADLINE_SOON"
    assert wire.ask("reserve-with-timeout 0") == b"DEADLINE_SOON"
    assert wire.ask("reserve-with-timeout 10") == b"DEADLINE_SOON"
    scene.passed(0)
    assert wire.ask(f"delete {job}") == b"DELETED"
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"


@scenario
def a_waiting_reserve_is_told_when_the_last_second_begins(scene: Scene) -> None:
    wire = scene.wire()
    job = wire.put(b"x", ttr=3)
    scene.start()
    wire.reserve()
    assert wire.ask("reserve") == b"DEADLINE_SOON"
    scene.passed(2)
    assert wire.ask(f"touch {job}") == b"TOUCHED"
    scene.start()
    assert wire.ask("reserve-with-timeout 10") == b"DEADLINE_SOON"
    scene.passed(2)
    assert wire.ask(f"delete {job}") == b"DELETED"


@scenario
def a_reserve_in_one_packet_with_a_reserve_job_knows_its_last_second(scene: Scene) -> None:
    """Whatever workers the job, and the tube that is waited on, belong to."""
    wires = []
    for name in [unique_tube("timing") for _ in range(6)]:
        wire = scene.wire()
        wire.use(name)
        job = wire.put(b"x", ttr=2)
        wire.send(f"reserve-job {job}\r\nreserve\r\n".encode())
        wires.append((wire, job))
    for wire, job in wires:
        assert wire.reply().number == job
        assert wire.reply().line == b"DEADLINE_SOON"
        assert wire.ask(f"delete {job}") == b"DELETED"


@scenario
def the_last_second_counts_over_all_tubes(scene: Scene) -> None:
    """What is held may be in any tube, and the reserve may wait on others."""
    names = [unique_tube("timing") for _ in range(6)]
    wire = scene.wire(*names)
    jobs = []
    for name in names:
        wire.use(name)
        jobs.append(wire.put(b"x", ttr=2 if name == names[2] else 60))
    for _ in jobs:
        wire.reserve()
    scene.start()
    assert wire.ask(f"touch {jobs[2]}") == b"TOUCHED"
    assert wire.ask("reserve") == b"DEADLINE_SOON"
    scene.passed(1)
    for job in jobs:
        assert wire.ask(f"delete {job}") == b"DELETED"


@scenario
def a_ready_job_is_better_than_a_warning(scene: Scene) -> None:
    wire = scene.wire()
    first = wire.put(b"1", ttr=1)
    second = wire.put(b"2")
    assert wire.reserve()[0] == first
    assert wire.reserve()[0] == second
    assert wire.ask("reserve") == b"DEADLINE_SOON"


@scenario
def a_warned_client_keeps_its_job_until_the_end(scene: Scene) -> None:
    wire = scene.wire()
    scene.start()
    job = wire.put(b"x", ttr=2)
    wire.reserve()
    assert wire.ask("reserve") == b"DEADLINE_SOON"
    scene.sleep_until(1.6)
    assert wire.stats_job(job)["state"] == "reserved"
    assert wire.ask(f"release {job} 0 0") == b"RELEASED"
    assert wire.stats_job(job)["timeouts"] == "0"


@scenario
def a_delayed_job_is_ready_after_its_delay(scene: Scene) -> None:
    wire = scene.wire()
    scene.start()
    job = wire.put(b"x", delay=1)
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    assert wire.exchange("peek-delayed").number == job
    assert wire.reserve(timeout=10)[0] == job
    scene.passed(1)
    stats = wire.stats_job(job)
    assert (stats["delay"], stats["kicks"], stats["releases"]) == ("1", "0", "0")


@scenario
def delayed_jobs_come_in_the_order_of_their_deadlines(scene: Scene) -> None:
    wire = scene.wire()
    scene.start()
    late = wire.put(b"late", pri=0, delay=2)
    soon = wire.put(b"soon", pri=9, delay=1)
    assert wire.reserve(timeout=10)[0] == soon
    scene.passed(1)
    assert wire.reserve(timeout=10)[0] == late
    scene.passed(2)


@scenario
def a_job_released_with_a_delay_waits_that_long(scene: Scene) -> None:
    wire = scene.wire()
    job = wire.put(b"x")
    wire.reserve()
    scene.start()
    assert wire.ask(f"release {job} 0 1") == b"RELEASED"
    assert wire.stats_job(job)["state"] == "delayed"
    assert wire.reserve(timeout=10)[0] == job
    scene.passed(1)


@scenario
def a_reserve_waits_no_longer_than_it_said(scene: Scene) -> None:
    wire = scene.wire()
    scene.start()
    assert wire.ask("reserve-with-timeout 1") == b"TIMED_OUT"
    scene.passed(1)
    wire.send(b"reserve-with-timeout 1\r\nreserve-with-timeout 1\r\nlist-tube-used\r\n")
    assert [r.line for r in wire.replies(2)] == [b"TIMED_OUT"] * 2
    scene.passed(3)
    assert wire.reply().word == b"USING"


@scenario
def a_reserve_over_many_tubes_waits_no_longer_than_it_said(scene: Scene) -> None:
    wire = scene.wire(*(unique_tube("timing") for _ in range(20)))
    scene.start()
    assert wire.ask("reserve-with-timeout 1") == b"TIMED_OUT"
    scene.passed(1)


@scenario
def holding_a_job_with_much_time_does_not_shorten_the_wait(scene: Scene) -> None:
    wire = scene.wire()
    job = wire.put(b"x", ttr=60)
    wire.reserve()
    scene.start()
    assert wire.ask("reserve-with-timeout 1") == b"TIMED_OUT"
    scene.passed(1)
    assert wire.ask(f"delete {job}") == b"DELETED"


@scenario
def a_paused_tube_gives_nothing_until_the_pause_is_over(scene: Scene) -> None:
    waiter, control = scene.wire(), scene.wire()
    before = control.put(b"before")
    scene.start()
    assert control.ask(f"pause-tube {scene.tube} 1") == b"PAUSED"
    waiter.send(b"reserve\r\nreserve\r\n")
    after = control.put(b"after")
    assert control.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    assert [waiter.reply().number, waiter.reply().number] == [before, after]
    scene.passed(1)
    stats = control.stats_tube(scene.tube)
    assert (stats["pause"], stats["pause-time-left"], stats["cmd-pause-tube"]) == ("0", "0", "1")


@scenario
def a_pause_holds_only_its_own_tube(scene: Scene) -> None:
    other = unique_tube("timing")
    wire = scene.wire(scene.tube, other)
    paused = wire.put(b"paused", pri=0)
    wire.use(other)
    free = wire.put(b"free", pri=9)
    scene.start()
    assert wire.ask(f"pause-tube {scene.tube} 1") == b"PAUSED"
    assert wire.reserve()[0] == free
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    assert wire.reserve(timeout=10)[0] == paused
    scene.passed(1)


@scenario
def a_new_pause_replaces_the_old_one(scene: Scene) -> None:
    wire = scene.wire()
    job = wire.put(b"x")
    assert wire.ask(f"pause-tube {scene.tube} 1000") == b"PAUSED"
    scene.start()
    assert wire.ask(f"pause-tube {scene.tube} 1") == b"PAUSED"
    assert wire.reserve(timeout=10)[0] == job
    scene.passed(1)


@scenario
def a_pause_outlasts_delays_and_times_to_run(scene: Scene) -> None:
    holder, waiter = scene.wire(), scene.wire()
    held = holder.put(b"held", ttr=1, pri=1)
    holder.put(b"delayed", delay=1, pri=0)
    holder.exchange(f"reserve-job {held}")
    scene.start()
    assert holder.ask(f"pause-tube {scene.tube} 2") == b"PAUSED"
    waiter.send(b"reserve\r\nreserve\r\n")
    scene.sleep_until(1.5)
    if not scene.server.shape.is_shards:
        holder.ask("list-tube-used")  # see reply_to
    stats = holder.stats_tube(scene.tube)
    assert (stats["current-jobs-ready"], stats["current-waiting"]) == ("2", "1")
    assert [r.body for r in waiter.replies(2)] == [b"delayed", b"held"]
    scene.passed(2)


@scenario
def several_jobs_time_out_each_at_its_own_time(scene: Scene) -> None:
    holder, waiter = scene.wire(), scene.wire()
    jobs = {ttr: holder.put(b"", pri=9 - ttr, ttr=ttr) for ttr in (1, 2, 3)}
    scene.start()
    for _ in jobs:
        holder.reserve()
    for ttr, job in jobs.items():
        waiter.send(b"reserve\r\n")
        assert scene.reply_to(waiter, holder).number == job
        scene.passed(ttr)
        assert waiter.ask(f"delete {job}") == b"DELETED"


@scenario
def age_and_time_left_count_whole_seconds(scene: Scene) -> None:
    wire = scene.wire()
    scene.start()
    job = wire.put(b"x", ttr=10, delay=10)
    scene.sleep_until(1.3)
    stats = wire.stats_job(job)
    assert (stats["age"], stats["time-left"]) == ("1", "8")
    wire.exchange(f"reserve-job {job}")
    stats = wire.stats_job(job)
    assert (stats["age"], stats["time-left"]) == ("1", "9")
    wire.ask(f"pause-tube {scene.tube} 10")
    assert wire.stats_tube(scene.tube)["pause-time-left"] == "9"


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("shape", shapes(*SHAPES))
def test_in_time(name: str, shape: Shape, outcomes: dict[tuple[Shape, str], Future[None]]) -> None:
    outcomes[shape, name].result(60)
