"""Every command of the beanstalk protocol, every reply and every error, byte for byte."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.beanstalk.replies import Reply, parse_dict
from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import SHAPES, Server, Shape, running, shapes, wait_until

MAX_JOB_BYTES = 65535
MAX_U32 = 4294967295


@pytest.fixture
def tube() -> str:
    return unique_tube("commands")


@pytest.fixture
def wire(server: Server, tube: str) -> Iterator[Wire]:
    """A connection that uses and watches a tube of its own and nothing else."""
    with connection(server, tube) as wire:
        yield wire


def connection(server: Server, tube: str) -> Wire:
    wire = Wire(server)
    wire.use(tube)
    wire.watch_only(tube)
    return wire


class TestPut:
    @pytest.mark.parametrize("body", [b"", b"x", b"\r\n", b"a\r\nb\r\n", bytes(range(256)), b"put 0 0 0 1\r\nx\r\n"])
    def test_any_bytes_come_back_as_they_were(self, wire: Wire, body: bytes) -> None:
        job = wire.put(body)
        assert wire.exchange(f"peek {job}") == Reply(b"FOUND %d %d" % (job, len(body)), body)
        assert wire.reserve() == (job, body)
        assert wire.ask(f"delete {job}") == b"DELETED"

    def test_a_body_of_the_greatest_size_is_taken(self, wire: Wire) -> None:
        body = os.urandom(MAX_JOB_BYTES)
        job = wire.put(body)
        assert wire.reserve() == (job, body)
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize("size", [MAX_JOB_BYTES + 1, 200_000])
    def test_a_body_too_big_is_swallowed_and_the_connection_goes_on(self, wire: Wire, size: int) -> None:
        wire.send(b"put 0 0 60 %d\r\n%s\r\nlist-tube-used\r\n" % (size, b"y" * size))
        assert wire.reply() == Reply(b"JOB_TOO_BIG")
        assert wire.reply().word == b"USING"
        assert wire.ask("peek-ready") == b"NOT_FOUND"

    def test_too_big_is_said_only_after_the_whole_body(self, wire: Wire) -> None:
        wire.send(b"put 0 0 60 65536\r\n" + b"y" * 65537)
        assert wire.is_quiet(0.1)
        wire.send(b"\n")
        assert wire.reply() == Reply(b"JOB_TOO_BIG")

    def test_too_big_comes_before_trailing_garbage(self, wire: Wire) -> None:
        wire.send(b"put 0 0 60 65536 garbage\r\n" + b"y" * 65538)
        assert wire.reply() == Reply(b"JOB_TOO_BIG")

    @pytest.mark.parametrize("trailer", [b"xy", b"\rx", b"x\n", b"\n\r"])
    def test_a_body_without_crlf_is_refused_and_the_connection_goes_on(self, wire: Wire, trailer: bytes) -> None:
        wire.send(b"put 0 0 60 3\r\nabc%slist-tube-used\r\n" % trailer)
        assert wire.reply() == Reply(b"EXPECTED_CRLF")
        assert wire.reply().word == b"USING"
        assert wire.ask("peek-ready") == b"NOT_FOUND"

    def test_a_body_longer_than_said_is_read_as_the_next_command(self, wire: Wire) -> None:
        wire.send(b"put 0 0 60 3\r\nabcd\r\nx\r\n")
        assert wire.reply() == Reply(b"EXPECTED_CRLF")
        assert wire.reply() == Reply(b"UNKNOWN_COMMAND")

    @pytest.mark.parametrize("pri", [0, 1, 1023, 1024, MAX_U32])
    def test_priorities_up_to_32_bits_are_kept(self, wire: Wire, pri: int) -> None:
        job = wire.put(b"x", pri=pri)
        assert wire.stats_job(job)["pri"] == str(pri)
        wire.ask(f"delete {job}")

    def test_delay_and_ttr_up_to_32_bits_are_kept(self, wire: Wire) -> None:
        job = wire.put(b"x", delay=MAX_U32, ttr=MAX_U32)
        stats = wire.stats_job(job)
        assert (stats["delay"], stats["ttr"], stats["state"]) == (str(MAX_U32), str(MAX_U32), "delayed")
        assert int(stats["time-left"]) in (MAX_U32, MAX_U32 - 1, MAX_U32 - 2)
        wire.ask(f"delete {job}")

    def test_a_ttr_of_0_becomes_1(self, wire: Wire) -> None:
        job = wire.put(b"x", ttr=0)
        assert wire.stats_job(job)["ttr"] == "1"
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize(
        "arguments",
        [
            "", "0", "0 0", "0 0 60", "4294967296 0 60 1", "0 4294967296 60 1", "0 0 4294967296 1", "0 0 60 4294967296",
            "-1 0 60 1", "0 -1 60 1", "0 0 -1 1", "0 0 60 -1", "x 0 60 1", "0 x 60 1", "0 0 x 1", "0 0 60 x",
            "0 0 60 1 ", "0 0 60 1 1", "0 0 60 1x", "1x 0 60 1", "0x1 0 60 1", "+1 0 60 1", "1.0 0 60 1",
            "99999999999999999999999 0 60 1", "0\t0 60 1",
        ],
    )  # fmt: skip
    def test_bad_arguments_are_refused_and_the_body_is_not_skipped(self, wire: Wire, arguments: str) -> None:
        wire.send(b"put %s\r\nx\r\n" % arguments.encode())
        assert wire.reply() == Reply(b"BAD_FORMAT")
        assert wire.reply() == Reply(b"UNKNOWN_COMMAND")

    def test_more_spaces_between_numbers_are_allowed(self, wire: Wire) -> None:
        wire.send(b"put   7  0   60    1\r\nx\r\n")
        reply = wire.reply()
        assert reply.word == b"INSERTED"
        assert wire.stats_job(reply.number)["pri"] == "7"
        wire.ask(f"delete {reply.number}")

    def test_leading_zeros_are_allowed(self, wire: Wire) -> None:
        wire.send(b"put 007 00 0060 01\r\nx\r\n")
        reply = wire.reply()
        assert reply.word == b"INSERTED"
        stats = wire.stats_job(reply.number)
        assert (stats["pri"], stats["ttr"]) == ("7", "60")
        wire.ask(f"delete {reply.number}")

    def test_ids_are_unique_and_rise(self, server: Server, wire: Wire, tube: str) -> None:
        with connection(server, tube) as other:
            ids = [w.put(b"") for _ in range(50) for w in (wire, other)]
        assert ids == sorted(set(ids))
        for job in ids:
            wire.ask(f"delete {job}")


class TestReserve:
    def test_an_empty_tube_times_out_at_once(self, wire: Wire) -> None:
        assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"

    def test_the_most_urgent_comes_first_then_the_oldest(self, wire: Wire) -> None:
        pris = [5, 0, MAX_U32, 5, 0, 1024]
        jobs = [(pri, wire.put(b"%d" % i, pri=pri)) for i, pri in enumerate(pris)]
        assert [wire.reserve()[0] for _ in jobs] == [job for _, job in sorted(jobs)]
        for _, job in jobs:
            assert wire.ask(f"delete {job}") == b"DELETED"

    def test_a_put_answers_a_waiting_reserve(self, server: Server, wire: Wire, tube: str) -> None:
        with connection(server, tube) as producer:
            wire.send(b"reserve\r\n")
            producer.wait_for_stats_tube(tube, current_waiting=1)
            job = producer.put(b"awaited")
            assert wire.reply() == Reply(b"RESERVED %d 7" % job, b"awaited")
            producer.wait_for_stats_tube(tube, current_waiting=0)
        wire.ask(f"delete {job}")

    def test_who_waits_first_is_served_first(self, server: Server) -> None:
        tube = unique_tube("fifo")
        with connection(server, tube) as producer:
            waiting = [connection(server, tube) for _ in range(3)]
            for count, wire in enumerate(waiting, 1):
                wire.send(b"reserve\r\n")
                producer.wait_for_stats_tube(tube, current_waiting=count)
            jobs = [producer.put(b"%d" % n) for n in range(3)]
            assert [wire.reply().number for wire in waiting] == jobs
            for wire, job in zip(waiting, jobs, strict=True):
                assert wire.ask(f"delete {job}") == b"DELETED"
                wire.close()

    def test_commands_behind_a_waiting_reserve_are_answered_after_it(
        self, server: Server, wire: Wire, tube: str
    ) -> None:
        with connection(server, tube) as producer:
            wire.send(b"reserve\r\nlist-tube-used\r\nnonsense\r\n")
            producer.wait_for_stats_tube(tube, current_waiting=1)
            assert wire.is_quiet(0.05)
            job = producer.put(b"x")
            assert [r.word for r in wire.replies(3)] == [b"RESERVED", b"USING", b"UNKNOWN_COMMAND"]
        wire.ask(f"delete {job}")

    def test_release_kick_and_a_closed_connection_answer_a_waiting_reserve(self, server: Server, tube: str) -> None:
        with connection(server, tube) as holder, connection(server, tube) as waiter:
            job = holder.put(b"x", delay=100)
            waiter.send(b"reserve\r\n")
            holder.wait_for_stats_tube(tube, current_waiting=1)
            assert holder.ask("kick 1") == b"KICKED 1"
            assert waiter.reply().number == job
            holder.send(b"reserve\r\n")
            with connection(server, tube) as control:
                control.wait_for_stats_tube(tube, current_waiting=1)
            assert waiter.ask(f"release {job} 0 0") == b"RELEASED"
            assert holder.reply().number == job
            waiter.send(b"reserve\r\n")
            holder.wait_for_stats_tube(tube, current_waiting=1)
            holder.close()
            assert waiter.reply().number == job
            assert waiter.ask(f"delete {job}") == b"DELETED"

    @pytest.mark.parametrize("line", ["reserve ", "reserve 1", "reserved", "reserve-job", "reserve-with-timeout",
                                      "reserve-with-timeout 99999999999999999999"])  # fmt: skip
    def test_malformed_reserves_are_refused(self, server: Server, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"

    @pytest.mark.parametrize("seconds", ["9223372036854775808", "-9223372036854775809"])
    def test_a_timeout_that_no_long_holds_is_refused(self, wire: Wire, seconds: str) -> None:
        assert wire.ask(f"reserve-with-timeout {seconds}") == b"BAD_FORMAT"

    @pytest.mark.parametrize(
        "seconds",
        ["x", "", " ", "-", "+", "- 1", "+0", "-0", "0x7", "\t\v\f0", "0 junk", "4294967296", "-4294967296"],
    )
    def test_a_timeout_is_what_strtol_makes_of_it(self, server: Server, wire: Wire, seconds: str) -> None:
        if checks_timeouts(server):
            pytest.skip("beanstalkd is stricter since 1.13")
        assert wire.ask(f"reserve-with-timeout {seconds}") == b"TIMED_OUT"

    @pytest.mark.parametrize(
        "seconds", ["2147483647", "-1", "-5 x", "2147483648", "4294967295", "9223372036854775807", "-2147483649"]
    )
    def test_the_greatest_timeout_and_a_negative_one_wait(self, server: Server, wire: Wire, seconds: str) -> None:
        if checks_timeouts(server) and seconds != "2147483647":
            pytest.skip("beanstalkd is stricter since 1.13")
        wire.send(f"reserve-with-timeout {seconds}\r\n".encode())
        assert wire.is_quiet(0.05)

    def test_what_a_closed_connection_held_is_ready_again(self, server: Server, wire: Wire, tube: str) -> None:
        jobs = [wire.put(b"%d" % n, pri=9 - n) for n in range(3)]
        with connection(server, tube) as holder:
            for _ in jobs:
                holder.reserve()
        wire.wait_for_stats_tube(tube, current_jobs_ready=3, current_jobs_reserved=0)
        assert [wire.reserve()[0] for _ in jobs] == jobs[::-1]
        for job in jobs:
            assert parse_dict(wire.exchange(f"stats-job {job}").body or b"")["releases"] == "0"
            wire.ask(f"delete {job}")

    def test_a_waiting_connection_that_closes_takes_nothing(self, server: Server, wire: Wire, tube: str) -> None:
        gone = connection(server, tube)
        gone.send(b"reserve\r\n")
        wire.wait_for_stats_tube(tube, current_waiting=1)
        gone.close()
        wire.wait_for_stats_tube(tube, current_waiting=0, current_watching=1)
        job = wire.put(b"x")
        assert wire.reserve() == (job, b"x")
        wire.ask(f"delete {job}")


class TestReserveJob:
    def test_ready_delayed_and_buried_jobs_can_be_had_by_id(self, wire: Wire) -> None:
        ready = wire.put(b"r", pri=5)
        delayed = wire.put(b"d", delay=100)
        buried = wire.put(b"b")
        assert wire.reserve() == (buried, b"b")
        assert wire.ask(f"bury {buried} 0") == b"BURIED"
        for job, body in ((ready, b"r"), (delayed, b"d"), (buried, b"b")):
            assert wire.exchange(f"reserve-job {job}") == Reply(b"RESERVED %d 1" % job, body)
            assert wire.stats_job(job)["state"] == "reserved"
            assert wire.ask(f"delete {job}") == b"DELETED"

    def test_a_reserved_job_cannot_be_had_by_anybody(self, server: Server, wire: Wire) -> None:
        job = wire.put(b"x")
        wire.reserve()
        with Wire(server) as other:
            for w in (wire, other):
                assert w.ask(f"reserve-job {job}") == b"NOT_FOUND"
        wire.ask(f"delete {job}")

    def test_it_needs_no_watching(self, server: Server, wire: Wire) -> None:
        job = wire.put(b"x")
        with Wire(server) as other:
            assert other.ask(f"reserve-job {job}").startswith(b"RESERVED")
            assert other.ask(f"delete {job}") == b"DELETED"

    def test_unknown_and_malformed_ids(self, wire: Wire) -> None:
        assert wire.ask("reserve-job 999999999999") == b"NOT_FOUND"
        assert wire.ask("reserve-job 18446744073709551615") == b"NOT_FOUND"
        for bad in ("18446744073709551616", "-1", "x", "", "1x"):
            assert wire.ask(f"reserve-job {bad}") == b"BAD_FORMAT"


class TestDelete:
    def test_ready_delayed_and_buried_jobs_can_be_deleted_by_anybody(self, server: Server, wire: Wire) -> None:
        buried, ready, delayed = wire.put(b"b"), wire.put(b"r", pri=9), wire.put(b"d", delay=100)
        wire.reserve()
        wire.ask(f"bury {buried} 0")
        with Wire(server) as other:
            for job in (ready, delayed, buried):
                assert other.ask(f"delete {job}") == b"DELETED"
                assert other.ask(f"delete {job}") == b"NOT_FOUND"
                assert other.ask(f"peek {job}") == b"NOT_FOUND"

    def test_a_reserved_job_can_be_deleted_by_its_holder_only(self, server: Server, wire: Wire) -> None:
        job = wire.put(b"x")
        wire.reserve()
        with Wire(server) as other:
            for command in (f"delete {job}", f"release {job} 0 0", f"bury {job} 0", f"touch {job}", f"kick-job {job}"):
                assert other.ask(command) == b"NOT_FOUND"
            assert other.ask(f"peek {job}") == b"FOUND %d 1" % job
        assert wire.ask(f"delete {job}") == b"DELETED"

    @pytest.mark.parametrize("line", ["delete", "delete ", "delete x", "delete -1", "delete 1 ", "delete 1 1",
                                      "delete 18446744073709551616"])  # fmt: skip
    def test_malformed(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == (b"UNKNOWN_COMMAND" if line == "delete" else b"BAD_FORMAT")

    def test_ids_that_nothing_can_have(self, wire: Wire) -> None:
        for job in (0, 1 << 63, (1 << 64) - 1):
            assert wire.ask(f"delete {job}") == b"NOT_FOUND"


class TestRelease:
    def test_it_is_ready_again_with_its_new_priority(self, wire: Wire) -> None:
        first, second = wire.put(b"1", pri=1), wire.put(b"2", pri=2)
        assert wire.reserve()[0] == first
        assert wire.ask(f"release {first} 3 0") == b"RELEASED"
        stats = wire.stats_job(first)
        assert (stats["state"], stats["pri"], stats["releases"]) == ("ready", "3", "1")
        assert [wire.reserve()[0] for _ in range(2)] == [second, first]
        for job in (first, second):
            wire.ask(f"delete {job}")

    def test_with_a_delay_it_is_delayed(self, wire: Wire) -> None:
        job = wire.put(b"x")
        wire.reserve()
        assert wire.ask(f"release {job} 0 {MAX_U32}") == b"RELEASED"
        stats = wire.stats_job(job)
        assert (stats["state"], stats["delay"]) == ("delayed", str(MAX_U32))
        wire.ask(f"delete {job}")

    def test_jobs_not_held_are_not_found(self, wire: Wire) -> None:
        job = wire.put(b"x")
        assert wire.ask(f"release {job} 0 0") == b"NOT_FOUND"
        assert wire.ask("release 999999999999 0 0") == b"NOT_FOUND"
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize("arguments", ["", "1", "1 1", "1 1 x", "1 x 1", "x 1 1", "1 4294967296 0",
                                           "1 0 4294967296",
                                           "1 1 1 ", "1 1 1 1", "1 -1 0", "1 0 -1"])  # fmt: skip
    def test_malformed(self, wire: Wire, arguments: str) -> None:
        assert wire.ask(f"release {arguments}") == b"BAD_FORMAT"


class TestBuryAndKick:
    def test_kick_takes_the_longest_buried_first_and_delayed_ones_only_if_none_is_buried(self, wire: Wire) -> None:
        jobs = [wire.put(b"%d" % n, pri=n) for n in range(3)]
        delayed = [wire.put(b"d", delay=300), wire.put(b"d", delay=200)]
        for _ in jobs:
            wire.reserve()
        order = [jobs[1], jobs[2], jobs[0]]
        for job in order:
            assert wire.ask(f"bury {job} 7") == b"BURIED"
        assert wire.exchange("peek-buried").number == order[0]
        assert wire.ask("kick 2") == b"KICKED 2"
        assert [wire.stats_job(j)["state"] for j in order] == ["ready", "ready", "buried"]
        assert wire.ask("kick 100") == b"KICKED 1"
        assert wire.ask("kick 1") == b"KICKED 1"
        assert [wire.stats_job(j)["state"] for j in delayed] == ["delayed", "ready"]
        assert wire.ask("kick 100") == b"KICKED 1"
        assert wire.ask("kick 100") == b"KICKED 0"
        stats = wire.stats_job(jobs[0])
        assert (stats["pri"], stats["buries"], stats["kicks"]) == ("7", "1", "1")
        for job in jobs + delayed:
            assert wire.ask(f"delete {job}") == b"DELETED"

    def test_kick_is_about_the_used_tube_only(self, server: Server, wire: Wire) -> None:
        job = wire.put(b"x", delay=100)
        with Wire(server) as other:
            other.use(unique_tube())
            assert other.ask("kick 10") == b"KICKED 0"
        assert wire.ask("kick 0") == b"KICKED 0"
        assert wire.ask("kick 4294967295") == b"KICKED 1"
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize("line", ["kick ", "kick x", "kick 99999999999999999999"])
    def test_malformed_kicks(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"

    def test_kick_job_frees_buried_and_delayed_jobs_of_any_tube(self, server: Server, wire: Wire) -> None:
        buried, delayed, ready = wire.put(b"b"), wire.put(b"d", delay=100), wire.put(b"r", pri=9)
        wire.reserve()
        assert wire.ask(f"kick-job {buried}") == b"NOT_FOUND", "reserved"
        wire.ask(f"bury {buried} 0")
        with Wire(server) as other:
            assert other.ask(f"kick-job {buried}") == b"KICKED"
            assert other.ask(f"kick-job {delayed}") == b"KICKED"
            assert other.ask(f"kick-job {ready}") == b"NOT_FOUND"
            assert other.ask("kick-job 999999999999") == b"NOT_FOUND"
            for bad in ("", "x", "-1", "1 1"):
                assert other.ask(f"kick-job {bad}") == b"BAD_FORMAT"
        for job in (buried, delayed, ready):
            assert wire.stats_job(job)["state"] == "ready"
            wire.ask(f"delete {job}")

    def test_only_a_holder_can_bury(self, wire: Wire) -> None:
        job = wire.put(b"x")
        assert wire.ask(f"bury {job} 0") == b"NOT_FOUND"
        for bad in ("", "1", "1 x", "x 1", "1 4294967296", "1 1 1"):
            assert wire.ask(f"bury {bad}") == b"BAD_FORMAT"
        wire.ask(f"delete {job}")


class TestTouch:
    def test_touch(self, wire: Wire) -> None:
        job = wire.put(b"x")
        assert wire.ask(f"touch {job}") == b"NOT_FOUND"
        wire.reserve()
        assert wire.ask(f"touch {job}") == b"TOUCHED"
        assert wire.ask("touch 999999999999") == b"NOT_FOUND"
        for bad in ("", "x", "-1", "1 1"):
            assert wire.ask(f"touch {bad}") == b"BAD_FORMAT"
        wire.ask(f"delete {job}")


class TestPeek:
    def test_each_form_finds_the_next_of_its_state_and_changes_nothing(self, wire: Wire) -> None:
        for command in ("peek-ready", "peek-delayed", "peek-buried"):
            assert wire.ask(command) == b"NOT_FOUND"
        buried = [wire.put(b"b%d" % n) for n in range(2)]
        for job in buried:
            wire.reserve()
            wire.ask(f"bury {job} 0")
        ready = [wire.put(b"r%d" % n, pri=9 - n) for n in range(2)]
        delayed = [wire.put(b"d%d" % n, delay=200 - n) for n in range(2)]
        for _ in range(2):
            assert wire.exchange("peek-ready") == Reply(b"FOUND %d 2" % ready[1], b"r1")
            assert wire.exchange("peek-delayed") == Reply(b"FOUND %d 2" % delayed[1], b"d1")
            assert wire.exchange("peek-buried") == Reply(b"FOUND %d 2" % buried[0], b"b0")
        for job in buried + ready + delayed:
            assert wire.ask(f"delete {job}") == b"DELETED"

    def test_they_look_at_the_used_tube_not_the_watched_ones(self, server: Server, wire: Wire, tube: str) -> None:
        job = wire.put(b"x")
        with Wire(server) as other:
            other.watch_only(tube)
            other.use(unique_tube())
            assert other.ask("peek-ready") == b"NOT_FOUND"
            assert other.ask(f"peek {job}") == b"FOUND %d 1" % job
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize("line", ["peek ", "peek x", "peek -1", "peek 1 1", "peek-ready ", "peek-readyx",
                                      "peek-delayed 1", "peek-buried 1", "peek 18446744073709551616"])  # fmt: skip
    def test_malformed(self, wire: Wire, line: str) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"


class TestTubes:
    def test_a_new_connection_uses_and_watches_default(self, server: Server) -> None:
        with Wire(server) as wire:
            assert wire.ask("list-tube-used") == b"USING default"
            assert wire.watched() == ["default"]

    def test_watch_and_ignore_count_the_watched_tubes(self, server: Server) -> None:
        a, b = unique_tube(), unique_tube()
        with Wire(server) as wire:
            assert wire.ask(f"watch {a}") == b"WATCHING 2"
            assert wire.ask(f"watch {a}") == b"WATCHING 2"
            assert wire.ask(f"watch {b}") == b"WATCHING 3"
            assert wire.ask("ignore never-watched") == b"WATCHING 3"
            assert wire.ask("ignore default") == b"WATCHING 2"
            assert sorted(wire.watched()) == sorted([a, b])
            assert wire.ask(f"ignore {a}") == b"WATCHING 1"
            assert wire.ask(f"ignore {b}") == b"NOT_IGNORED"
            assert wire.ask("ignore never-watched") == b"WATCHING 1"
            assert wire.watched() == [b]

    def test_a_tube_lives_as_long_as_somebody_or_some_job_needs_it(self, server: Server) -> None:
        name = unique_tube("short-lived")
        with Wire(server) as wire, Wire(server) as other:
            assert name not in wire.list()
            assert wire.ask(f"stats-tube {name}") == b"NOT_FOUND"
            wire.use(name)
            assert name in wire.list()
            other.ask(f"watch {name}")
            wire.use("default")
            other.wait_for_stats_tube(name, current_using=0, current_watching=1)
            assert other.ask(f"ignore {name}") == b"WATCHING 1"
            wait_until(lambda: name not in wire.list(), f"{name} is gone")
            wire.use(name)
            job = wire.put(b"x")
            wire.use("default")
            assert name in wire.list()
            assert wire.ask(f"delete {job}") == b"DELETED"
            wait_until(lambda: name not in wire.list(), f"{name} is gone again")
            assert wire.ask(f"stats-tube {name}") == b"NOT_FOUND"
            assert "default" in wire.list()

    def test_a_tube_that_was_gone_begins_anew(self, server: Server) -> None:
        name = unique_tube("reborn")
        with Wire(server) as wire:
            wire.use(name)
            wire.ask(f"delete {wire.put(b'x')}")
            assert wire.stats_tube(name)["total-jobs"] == "1"
            wire.use("default")
            wait_until(lambda: wire.ask(f"stats-tube {name}") == b"NOT_FOUND", f"{name} is gone")
            wire.use(name)
            assert wire.stats_tube(name)["total-jobs"] == "0"

    @pytest.mark.parametrize(
        "name", ["a", "n" * 200, "A-Za-z0-9+/;.$_()", "+", "/", ";", ".", "$", "_", "(", ")", "0", "a-"]
    )
    def test_good_names(self, server: Server, name: str) -> None:
        with Wire(server) as wire:
            assert wire.ask(f"use {name}") == f"USING {name}".encode()
            assert wire.ask(f"watch {name}") == b"WATCHING 2"
            assert wire.ask("list-tube-used") == f"USING {name}".encode()
            assert sorted(wire.watched()) == sorted(["default", name])
            assert wire.ask(f"pause-tube {name} 0") == b"PAUSED"
            assert wire.stats_tube(name)["name"] == name
            assert wire.ask(f"ignore {name}") == b"WATCHING 1"

    @pytest.mark.parametrize("name", ["", "-", "-a", "a b", " a", "a ", "n" * 201, "a*", "a:b", "a\u00e9", "a\tb",
                                      "{a}", "a,b",
                                      "a@b", "\x01"])  # fmt: skip
    def test_bad_names(self, server: Server, name: str) -> None:
        with Wire(server) as wire:
            for command in ("use", "watch", "ignore", "stats-tube"):
                assert wire.ask(f"{command} {name}") == b"BAD_FORMAT", command
            assert wire.ask("list-tube-used") == b"USING default"
            assert wire.watched() == ["default"]

    def test_lists_take_no_argument(self, server: Server) -> None:
        with Wire(server) as wire:
            for command in ("list-tubes", "list-tube-used", "list-tubes-watched"):
                for garbage in (" ", "x", " 1"):
                    assert wire.ask(command + garbage) == b"BAD_FORMAT"


class TestPauseTube:
    def test_a_tube_that_does_not_exist_is_not_found_and_not_made(self, wire: Wire) -> None:
        name = unique_tube()
        assert wire.ask(f"pause-tube {name} 1") == b"NOT_FOUND"
        assert wire.ask(f"stats-tube {name}") == b"NOT_FOUND"

    def test_jobs_of_a_paused_tube_are_not_reserved_but_all_else_works(self, wire: Wire, tube: str) -> None:
        job = wire.put(b"x")
        assert wire.ask(f"pause-tube {tube} 1000") == b"PAUSED"
        assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
        assert wire.exchange("peek-ready").number == job
        assert wire.put(b"y", pri=5) > job
        assert wire.exchange(f"reserve-job {job}").number == job
        assert wire.ask(f"bury {job} 0") == b"BURIED"
        assert wire.ask("kick 1") == b"KICKED 1"
        stats = wire.stats_tube(tube)
        assert (stats["pause"], stats["cmd-pause-tube"]) == ("1000", "1")
        assert int(stats["pause-time-left"]) in (998, 999, 1000)
        assert wire.ask(f"pause-tube {tube} 0") == b"PAUSED"
        assert wire.reserve()[0] == job
        wire.ask(f"delete {job}")
        wire.ask(f"delete {wire.reserve()[0]}")

    def test_ending_a_pause_answers_a_waiting_reserve(self, server: Server, wire: Wire, tube: str) -> None:
        with Wire(server) as control:
            control.ask(f"pause-tube {tube} 1000")
            job = wire.put(b"x")
            wire.send(b"reserve\r\n")
            control.wait_for_stats_tube(tube, current_waiting=1)
            assert wire.is_quiet(0.05)
            assert control.ask(f"pause-tube {tube} 0") == b"PAUSED"
            assert wire.reply().number == job
        wire.ask(f"delete {job}")

    @pytest.mark.parametrize("arguments", ["", " ", " default", " default ", " default x", " default -1",
                                           " default 1 1",
                                           " default 4294967296", " -a 1", " a*b 1",
                                           " " + "n" * 201 + " 1"])  # fmt: skip
    def test_malformed(self, wire: Wire, arguments: str) -> None:
        assert wire.ask("pause-tube" + arguments) == b"BAD_FORMAT"

    def test_the_longest_command_there_is(self, wire: Wire) -> None:
        assert wire.ask(f"pause-tube {'n' * 200} 4294967295") == b"NOT_FOUND"


class TestLines:
    @pytest.mark.parametrize("line", [b"", b" ", b"x", b"PUT 0 0 0 0", b"Use a", b" use a", b"put", b"use", b"watch",
                                      b"ignore",
                                      b"delete", b"release", b"bury", b"touch", b"kick", b"kick-job", b"peek",
                                      b"list-tube",
                                      b"stat", b"qui", b"\xff\xfe", b"GET / HTTP/1.1"])  # fmt: skip
    def test_unknown_commands(self, wire: Wire, line: bytes) -> None:
        assert wire.ask(line) == b"UNKNOWN_COMMAND"
        assert wire.ask("list-tube-used").startswith(b"USING")

    @pytest.mark.parametrize("line", [b"\0", b"use a\0b", b"list-tube-used\0", b"put 0 0 0 0\0", b"nonsense\0"])
    def test_a_nul_byte_is_bad_format(self, wire: Wire, line: bytes) -> None:
        assert wire.ask(line) == b"BAD_FORMAT"

    def test_a_line_of_224_bytes_with_its_crlf_is_read(self, wire: Wire) -> None:
        assert wire.ask(b"x" * 222) == b"UNKNOWN_COMMAND"
        job = wire.put(b"")
        assert wire.ask(b"delete" + (b"%d" % job).rjust(216)) == b"DELETED"

    @pytest.mark.parametrize("length", [224, 300, 446, 1000, 100_000])
    def test_a_longer_line_is_skipped_whole(self, wire: Wire, length: int) -> None:
        wire.send(b"use " + b"x" * (length - 4) + b"\r\nlist-tube-used\r\n")
        assert wire.reply() == Reply(b"BAD_FORMAT")
        assert wire.reply().word == b"USING"

    def test_a_line_may_come_byte_by_byte(self, wire: Wire, tube: str) -> None:
        for byte in b"put 3 0 60 5\r\nab\r\nc\r\nreserve\r\n":
            wire.send(bytes([byte]))
        job = wire.reply().number
        assert wire.reply() == Reply(b"RESERVED %d 5" % job, b"ab\r\nc")
        for byte in b"stats-job %d\r\nuse %s\r\ndelete %d\r\n" % (job, tube.encode(), job):
            wire.send(bytes([byte]))
        assert [r.word for r in wire.replies(3)] == [b"OK", b"USING", b"DELETED"]

    def test_a_lone_lf_ends_nothing(self, wire: Wire) -> None:
        wire.send(b"list-tube-used\n")
        assert wire.is_quiet(0.05)
        wire.send(b"\r\n")
        assert wire.reply() == Reply(b"BAD_FORMAT")


class TestEnd:
    @pytest.mark.parametrize("line", ["quit", "quit now", "quitter"])
    def test_quit_closes(self, server: Server, line: str) -> None:
        with Wire(server) as wire:
            wire.send(line.encode() + b"\r\n")
            assert wire.is_closed()

    def test_commands_before_quit_are_answered_and_those_after_it_are_not(self, server: Server) -> None:
        with Wire(server) as wire:
            wire.send(b"list-tube-used\r\nquit\r\nlist-tube-used\r\nuse x\r\n")
            assert wire.reply() == Reply(b"USING default")
            assert wire.is_closed()

    def test_a_half_closed_connection_is_answered_and_then_closed(self, server: Server, tube: str) -> None:
        with connection(server, tube) as wire:
            wire.send(b"put 0 0 60 1\r\nx\r\n" + b"list-tube-used\r\n" * 100 + b"peek-ready\r\n")
            wire.socket.shutdown(socket.SHUT_WR)
            job = wire.reply()
            assert [r.word for r in wire.replies(101)] == [b"USING"] * 100 + [b"FOUND"]
            assert wire.is_closed()
        with Wire(server) as other:
            assert other.ask(f"delete {job.number}") == b"DELETED"

    def test_a_reserve_does_not_wait_once_half_closed(self, server: Server, tube: str) -> None:
        with connection(server, tube) as wire, Wire(server) as control:
            wire.send(b"reserve\r\n")
            control.wait_for_stats_tube(tube, current_waiting=1)
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.reply() == Reply(b"TIMED_OUT")
            assert wire.is_closed()

    def test_a_put_cut_off_in_its_body_leaves_nothing(self, server: Server, wire: Wire, tube: str) -> None:
        with connection(server, tube) as other:
            other.send(b"put 0 0 60 10\r\nhalf")
            wire.wait_for_stats_tube(tube, current_using=2)
        wire.wait_for_stats_tube(tube, current_using=1, current_jobs_ready=0, total_jobs=0)


@pytest.mark.parametrize("shape", shapes(*SHAPES))
def test_a_draining_server_takes_no_puts_and_goes_on_otherwise(shape: Shape) -> None:
    with running(shape) as server, Wire(server) as wire:
        job = wire.put(b"before")
        assert wire.stats()["draining"] == "false"
        os.kill(server.process.pid, signal.SIGUSR1)

        def refused() -> bool:
            wire.send(b"put 0 0 60 1\r\nx\r\n")
            return wire.reply() == Reply(b"DRAINING")

        wait_until(refused, "puts are refused")
        wire.send(b"put 0 0 60 1\r\nxyz" + b"put 0 0 60 65536\r\n" + b"y" * 65536 + b"\r\n" + b"put x\r\n")
        assert [r.line for r in wire.replies(3)] == [b"EXPECTED_CRLF", b"JOB_TOO_BIG", b"BAD_FORMAT"]
        assert wire.stats()["draining"] == "true"
        assert wire.reserve() == (job, b"before")
        assert wire.ask(f"release {job} 0 0") == b"RELEASED"
        assert wire.ask(f"delete {job}") == b"DELETED"
        with Wire(server) as other:
            assert other.ask("list-tube-used") == b"USING default"


@pytest.mark.parametrize("shape", shapes(*SHAPES))
def test_the_greatest_job_size_is_an_option(shape: Shape) -> None:
    size = 20 << 20
    with running(shape, max_job_bytes=size) as server, Wire(server) as wire, Wire(server) as other:
        assert wire.stats()["max-job-size"] == str(size)
        body = os.urandom(1 << 20) * 20
        job = wire.put(body)
        assert other.exchange(f"peek {job}").body == body
        assert other.reserve() == (job, body)
        other.send(b"list-tube-used\r\nrelease %d 0 0\r\npeek-ready\r\nlist-tube-used\r\n" % job)
        replies = other.replies(4)
        assert [r.word for r in replies] == [b"USING", b"RELEASED", b"FOUND", b"USING"]
        assert replies[2].body == body
        assert wire.ask(f"delete {job}") == b"DELETED"
        wire.send(b"put 0 0 60 %d\r\n%sz\r\n" % (size + 1, body))
        assert wire.reply() == Reply(b"JOB_TOO_BIG")
        assert wire.ask("peek-ready") == b"NOT_FOUND"


def checks_timeouts(server: Server) -> bool:
    if server.shape.is_shards:
        return False
    with Wire(server) as wire:
        return not wire.stats()["version"].startswith("1.12")
