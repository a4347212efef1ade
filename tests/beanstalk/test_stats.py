"""Every field of stats, stats-tube and stats-job: its place, its form and its value as things happen."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.beanstalk.replies import parse_dict
from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import MANY, SHAPES, Server, Shape, running, shapes, wait_until

JOB_FIELDS = ["id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file", "reserves", "timeouts",
              "releases", "buries", "kicks"]  # fmt: skip
TUBE_FIELDS = ["name", "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
               "current-jobs-buried", "total-jobs", "current-using", "current-watching", "current-waiting",
               "cmd-delete", "cmd-pause-tube", "pause", "pause-time-left"]  # fmt: skip
COMMANDS = ["put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete",
            "release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube",
            "list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube"]  # fmt: skip
SERVER_FIELDS = [
    "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", *(f"cmd-{name}" for name in COMMANDS), "job-timeouts", "total-jobs", "max-job-size",
    "current-tubes", "current-connections", "current-producers", "current-workers", "current-waiting",
    "total-connections", "pid", "version", "rusage-utime", "rusage-stime", "uptime", "binlog-oldest-index",
    "binlog-current-index", "binlog-records-migrated", "binlog-records-written", "binlog-max-size", "draining", "id",
    "hostname", "os", "platform",
]  # fmt: skip


@pytest.fixture
def tube() -> str:
    return unique_tube("stats")


@pytest.fixture
def wire(server: Server, tube: str) -> Iterator[Wire]:
    with Wire(server) as wire:
        wire.use(tube)
        wire.watch_only(tube)
        yield wire


@pytest.fixture(scope="module", params=shapes(*SHAPES))
def fresh(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that nothing else is connected to."""
    with running(request.param) as server:
        yield server


def test_fields_and_their_order_are_beanstalkds(wire: Wire, tube: str) -> None:
    job = wire.put(b"x")
    assert list(wire.stats_job(job)) == JOB_FIELDS
    assert list(wire.stats_tube(tube)) == TUBE_FIELDS
    assert list(wire.stats()) == SERVER_FIELDS
    wire.ask(f"delete {job}")


class TestStatsJob:
    def test_through_a_life(self, wire: Wire, tube: str) -> None:
        job = wire.put(b"x", pri=9, delay=1000, ttr=70)
        expected = {
            "id": str(job), "tube": tube, "state": "delayed", "pri": "9", "age": "0", "delay": "1000", "ttr": "70",
            "time-left": "999", "reserves": "0", "timeouts": "0", "releases": "0", "buries": "0", "kicks": "0",
        }  # fmt: skip

        def holds(**changed: object) -> None:
            expected.update({name.replace("_", "-"): str(value) for name, value in changed.items()})
            got = wire.stats_job(job)
            assert int(got.pop("file")) >= 0
            for timed in ("age", "time-left"):
                assert abs(int(got.pop(timed)) - int(expected[timed])) <= 1
            assert got == {k: v for k, v in expected.items() if k not in ("age", "time-left")}

        holds()
        wire.ask(f"kick-job {job}")
        holds(state="ready", kicks=1, time_left=0)
        wire.reserve()
        holds(state="reserved", reserves=1, time_left=69)
        wire.ask(f"touch {job}")
        holds()
        wire.ask(f"release {job} 3 500")
        holds(state="delayed", releases=1, pri=3, delay=500, time_left=499)
        wire.ask("kick 1")
        holds(state="ready", kicks=2, time_left=0)
        wire.reserve()
        wire.ask(f"release {job} 4 0")
        holds(state="ready", reserves=2, releases=2, pri=4, delay=0)
        wire.ask(f"reserve-job {job}")
        wire.ask(f"bury {job} 5")
        holds(state="buried", reserves=3, buries=1, pri=5)
        wire.ask(f"kick-job {job}")
        holds(state="ready", kicks=3)
        wire.ask(f"delete {job}")
        assert wire.ask(f"stats-job {job}") == b"NOT_FOUND"

    @pytest.mark.parametrize(
        "line", ["stats-job ", "stats-job x", "stats-job -1", "stats-job 1 1", "stats-jobs", "stats-job"]
    )
    def test_malformed(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"


class TestStatsTube:
    def test_each_field_follows_what_happens(self, server: Server, wire: Wire, tube: str) -> None:
        expected = {"name": tube, **dict.fromkeys(TUBE_FIELDS[1:], "0"), "current-using": "1", "current-watching": "1"}

        def holds(**changed: object) -> None:
            expected.update({name.replace("_", "-"): str(value) for name, value in changed.items()})
            got = wire.stats_tube(tube)
            assert abs(int(got.pop("pause-time-left")) - int(expected["pause-time-left"])) <= 1
            assert got == {k: v for k, v in expected.items() if k != "pause-time-left"}

        holds()
        urgent, ready = wire.put(b"u", pri=1023), wire.put(b"r", pri=1024)
        holds(current_jobs_urgent=1, current_jobs_ready=2, total_jobs=2)
        wire.put(b"d", delay=1000)
        holds(current_jobs_delayed=1, total_jobs=3)
        assert wire.reserve()[0] == urgent
        holds(current_jobs_urgent=0, current_jobs_ready=1, current_jobs_reserved=1)
        assert wire.reserve()[0] == ready
        wire.ask(f"bury {ready} 0")
        holds(current_jobs_ready=0, current_jobs_buried=1)
        wire.ask(f"release {urgent} 5 0")
        holds(current_jobs_reserved=0, current_jobs_ready=1, current_jobs_urgent=1)
        wire.ask("kick 10")
        holds(current_jobs_buried=0, current_jobs_ready=2, current_jobs_urgent=2)
        wire.ask("kick 10")
        holds(current_jobs_delayed=0, current_jobs_ready=3, current_jobs_urgent=3)
        wire.ask(f"pause-tube {tube} 300")
        holds(cmd_pause_tube=1, pause=300, pause_time_left=299)
        wire.ask(f"pause-tube {tube} 0")
        holds(cmd_pause_tube=2, pause=0, pause_time_left=0)
        for deleted in (1, 2, 3):
            wire.ask(f"delete {wire.exchange('peek-ready').number}")
            holds(cmd_delete=deleted, current_jobs_ready=3 - deleted, current_jobs_urgent=3 - deleted)
        assert wire.ask(f"delete {urgent}") == b"NOT_FOUND"
        holds()
        with Wire(server) as other:
            other.use(tube)
            other.ask(f"watch {tube}")
            wire.wait_for_stats_tube(tube, current_using=2, current_watching=2)
            other.send(b"reserve\r\n")
            wire.wait_for_stats_tube(tube, current_waiting=1)
            holds(current_using=2, current_watching=2, current_waiting=1)
        wire.wait_for_stats_tube(tube, current_using=1, current_watching=1, current_waiting=0)
        holds(current_using=1, current_watching=1, current_waiting=0)

    def test_two_uses_by_one_connection_count_once(self, wire: Wire, tube: str) -> None:
        wire.use(tube)
        wire.ask(f"watch {tube}")
        wire.wait_for_stats_tube(tube, current_using=1, current_watching=1)

    @pytest.mark.parametrize("line", ["stats-tube", "stats-tube ", "stats-tube -a", "stats-tube a b", "stats-tube a "])
    def test_malformed(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"


class TestStats:
    def test_fields_that_describe_the_server(self, fresh: Server) -> None:
        with Wire(fresh) as wire:
            stats = wire.stats()
        assert int(stats["pid"]) in fresh.pids()
        assert re.fullmatch(r"[0-9a-f]{16}", stats["id"])
        assert re.fullmatch(r"\d+\.\d{6}", stats["rusage-utime"])
        assert re.fullmatch(r"\d+\.\d{6}", stats["rusage-stime"])
        assert int(stats["uptime"]) >= 0
        assert stats["hostname"] == socket.gethostname()
        assert stats["platform"] == os.uname().machine
        assert re.match(r'"?1\.\d+', stats["version"]), "clients ask it what the server can do"
        assert stats["os"]
        assert stats["draining"] == "false"
        assert stats["max-job-size"] == "65535"
        for name in ("oldest-index", "current-index", "records-migrated", "records-written", "max-size"):
            assert int(stats[f"binlog-{name}"]) >= 0

    def test_each_command_is_counted_once_when_it_is_well_formed(self, fresh: Server) -> None:
        with Wire(fresh) as wire:
            wire.use("counted")
            wire.watch_only("counted")
            job = wire.put(b"x")
            lines: dict[str, list[str]] = {
                "peek": [f"peek {job}", "peek 0"], "peek-ready": ["peek-ready"], "peek-delayed": ["peek-delayed"],
                "peek-buried": ["peek-buried"], "reserve-with-timeout": ["reserve-with-timeout 0"] * 2,
                "touch": [f"touch {job}", "touch 0"], "bury": [f"bury {job} 0", "bury 0 0"],
                "kick": ["kick 1", "kick 0"], "reserve": ["reserve"],
                "release": [f"release {job} 0 0", "release 0 0 0"],
                "delete": [f"delete {job}", f"delete {job}"], "use": ["use counted"], "watch": ["watch counted"],
                "ignore": ["ignore counted", "ignore x"], "stats-job": ["stats-job 0"],
                "stats-tube": ["stats-tube counted", "stats-tube never"], "list-tubes": ["list-tubes"],
                "list-tube-used": ["list-tube-used"], "list-tubes-watched": ["list-tubes-watched"],
                "pause-tube": ["pause-tube counted 0", "pause-tube never 0"], "stats": ["stats"],
            }  # fmt: skip
            before = wire.stats()
            for line in [line for group in lines.values() for line in group]:
                wire.exchange(line)
            for bad in ("peek x", "kick x", "delete x", "use -", "reserve x", "put 0", "stats x", "list-tubes x",
                        "kick-job 0", "reserve-job 0", "nonsense"):  # fmt: skip
                wire.exchange(bad)
            wire.send(b"put 0 0 0 65536\r\n" + b"x" * 65538 + b"put 0 0 0 1\r\nabc")
            assert [r.line for r in wire.replies(2)] == [b"JOB_TOO_BIG", b"EXPECTED_CRLF"]
            after = wire.stats()
            counted = {name: int(after[f"cmd-{name}"]) - int(before[f"cmd-{name}"]) for name in COMMANDS}
            assert counted == {"put": 2, **{name: len(group) for name, group in lines.items()}, "stats": 2}
            assert int(after["total-jobs"]) == int(before["total-jobs"])

    def test_jobs_are_counted_by_state_over_all_tubes(self, fresh: Server) -> None:
        with Wire(fresh) as wire:
            before = wire.stats()
            jobs = []
            for n in range(40):
                wire.use(f"spread-{n}")
                wire.ask(f"watch spread-{n}")
                jobs.append(wire.put(b"", pri=1023 + n % 2, delay=1000 if n % 4 == 3 else 0))
            after = wire.stats()
            grown = {k: int(after[k]) - int(before[k]) for k in after if k.startswith(("current-jobs", "total-jobs"))}
            assert grown == {
                "current-jobs-urgent": 20, "current-jobs-ready": 30, "current-jobs-reserved": 0,
                "current-jobs-delayed": 10, "current-jobs-buried": 0, "total-jobs": 40,
            }  # fmt: skip
            assert int(after["current-tubes"]) - int(before["current-tubes"]) == 40
            for job in (wire.reserve()[0] for _ in range(5)):
                wire.ask(f"bury {job} 0")
            for _ in range(5):
                wire.reserve()
            after = wire.stats()
            grown = {k: int(after[k]) - int(before[k]) for k in grown}
            assert grown == {
                "current-jobs-urgent": 10, "current-jobs-ready": 20, "current-jobs-reserved": 5,
                "current-jobs-delayed": 10, "current-jobs-buried": 5, "total-jobs": 40,
            }  # fmt: skip
            for job in jobs:
                assert wire.ask(f"delete {job}") == b"DELETED"
            assert wire.stats()["current-jobs-ready"] == before["current-jobs-ready"]

    def test_connections_are_counted_by_what_they_have_done(self, fresh: Server) -> None:
        with Wire(fresh) as control:
            self.counts_become(control, connections=1)
            total = int(control.stats()["total-connections"])
            producer, worker, finder, idle = (Wire(fresh) for _ in range(4))
            for wire in (producer, worker, finder, idle):
                wire.ask("list-tube-used")
            self.counts_become(control, connections=5, producers=0, workers=0, waiting=0)
            job = producer.put(b"x", pri=7, delay=1000)
            self.counts_become(control, producers=1)
            worker.ask("reserve-with-timeout 0")
            self.counts_become(control, workers=1, waiting=0)
            finder.ask("reserve-job 0")
            self.counts_become(control, workers=1)
            finder.ask(f"reserve-job {job}")
            self.counts_become(control, workers=2)
            finder.ask(f"delete {job}")
            worker.send(b"reserve\r\n")
            self.counts_become(control, waiting=1, workers=2)
            worker.close()
            self.counts_become(control, waiting=0, workers=1, connections=4)
            for wire in (producer, finder, idle):
                wire.close()
            self.counts_become(control, connections=1, producers=0, workers=0)
            assert int(control.stats()["total-connections"]) == total + 4

    @staticmethod
    def counts_become(control: Wire, **wanted: int) -> None:
        names = {f"current-{name}": str(value) for name, value in wanted.items()}

        def holds() -> bool:
            stats = control.stats()
            return {name: stats[name] for name in names} == names

        wait_until(holds, f"stats has {names}")

    @pytest.mark.parametrize("line", ["stats ", "statsx", "stats 1", "stats-"])
    def test_malformed(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"


@pytest.mark.parametrize("shape", shapes(*SHAPES))
def test_with_a_log_a_job_tells_its_file_and_stats_the_log(shape: Shape, tmp_path: Path) -> None:
    with running(shape, data_dir=tmp_path) as server, Wire(server) as wire:
        before = wire.stats()
        job = wire.put(b"x")
        after = wire.stats()
        assert int(wire.stats_job(job)["file"]) >= 1
        assert int(after["binlog-current-index"]) >= int(after["binlog-oldest-index"]) >= 1
        assert int(after["binlog-records-written"]) > int(before["binlog-records-written"])
        assert int(after["binlog-max-size"]) > 0


@pytest.mark.parametrize("shape", shapes(MANY))
def test_the_list_of_tubes_holds_those_of_all_shards(shape: Shape) -> None:
    with running(shape) as server, Wire(server) as wire:
        names = [f"tube-{n}" for n in range(500)]
        for name in names:
            wire.ask(f"watch {name}")
        assert sorted(wire.list()) == sorted([*names, "default"])
        assert wire.stats()["current-tubes"] == "501"
        body = wire.exchange("list-tubes-watched").body
        assert body is not None and body.count(b"\n- ") == 501
        check: Callable[[str], bool] = lambda name: parse_dict(wire.exchange(f"stats-tube {name}").body or b"") != {}  # noqa: E731
        assert all(check(name) for name in names)
