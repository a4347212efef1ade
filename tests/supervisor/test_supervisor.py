"""The supervisor with real processes: small children (tests/small_children.py) that do what control messages say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.servers import ROOT, SINGLE, comm_of, free_port, running, wait_until
from tests.starting import COMMAND
from tests.supervisor.small_broker import ANY_PORT, AT_WORK, OUTAGE_S, Start, all_gone


def test_each_process_has_a_name_and_the_rings_join_every_acceptor_to_every_worker(start: Start) -> None:
    broker = start("--workers", "3", "--acceptors", "2")
    pids = broker.pids()
    assert comm_of(broker.process.pid) == "mq-supervisor"
    assert {"mq-acceptor-0", "mq-acceptor-1", "mq-worker-0", "mq-worker-1", "mq-worker-2"} <= set(pids)
    answered: set[str] = set()
    until = time.monotonic() + 60
    while len(answered) < 2 and time.monotonic() < until:  # the kernel chooses the acceptor
        said = broker.ask()
        assert {name: pid for name, pid in said.items() if name.startswith("mq-worker")} == {
            name: pids[name] for name in ("mq-worker-0", "mq-worker-1", "mq-worker-2")
        }
        answered |= {name for name in said if name.startswith("mq-acceptor")}
    assert answered == {"mq-acceptor-0", "mq-acceptor-1"}


def test_children_are_told_what_they_need_in_order(start: Start) -> None:
    broker = start("--workers", "2", "--acceptors", "2", "--shards", "5", "--set", "beanstalk.max-job-size=77")
    assert broker.what("mq-worker-1") == ["start", "peer", "peer", "go"]
    assert broker.what("mq-acceptor-0") == ["start", "peer", "peer", "listen", "go"]
    worker, first, second, _ = broker.told("mq-worker-1")
    assert (worker["index"], worker["workers"], worker["acceptors"], worker["shards"]) == (1, 2, 2, 5)
    assert (worker["own"], worker["data_dir"], worker["sync"]) == ([1, 3], None, "never")
    assert worker["settings"]["beanstalk"]["max-job-size"] == 77
    assert (worker["fds"], first["fds"], first["epoch"], {first["acceptor"], second["acceptor"]}) == (2, 3, 1, {0, 1})
    acceptor, peer, _, listen, _ = broker.told("mq-acceptor-0")
    assert (acceptor["index"], acceptor["workers"], acceptor["shards"], acceptor["fds"]) == (0, 2, 5, 2)
    assert abs(acceptor["started_wall_ns"] - time.time_ns()) < 60e9
    assert re.fullmatch("[0-9a-f]{16}", acceptor["instance"])
    assert (peer["fds"], peer["epoch"], listen["protocol"], listen["fds"]) == (3, 1, "beanstalk", 1)


def test_acceptors_start_only_when_all_workers_have_recovered(start: Start) -> None:
    broker = start("--workers", "2")
    acceptor = broker.told("mq-acceptor-0")[0]
    assert all(entry["at"] < acceptor["at"] for w in (0, 1) for entry in broker.told(f"mq-worker-{w}"))


def test_clients_are_refused_until_messages_are_recovered(start: Start) -> None:
    port = free_port()
    options = ("--workers", "1", "--listen", f"nats://127.0.0.1:{port}")
    broker = start(*options, does={"mq-worker-0": "hesitate"}, ready=False)
    wait_until(lambda: "go" in broker.what("mq-worker-0"), "the worker recovers", 20)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 20)
    (broker.directory / "mq-worker-0.does").unlink()
    broker.wait_until_ready()
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        assert connection.makefile().readline().startswith("mq-acceptor-0:")


def test_connections_are_handed_over_by_sockets_that_outlive_processes(start: Start) -> None:
    def handovers(title: str) -> list[tuple[int, int]]:
        told = [entry for entry in broker.told(title) if entry["do"] == "handover"]
        return [(entry["acceptor"], entry["fds"]) for entry in told]

    broker = start("--memory", "--acceptors", "2", "--listen", "nsq-http://127.0.0.1:0", *AT_WORK)
    assert handovers("mq-acceptor-0") == [(0, 1)]
    assert handovers("mq-acceptor-1") == [(1, 1)]
    assert handovers("mq-gateway") == [(0, 1), (1, 1)]
    os.kill(broker.pids()["mq-gateway"], signal.SIGKILL)
    wait_until(lambda: len(handovers("mq-gateway")) == 4, "the new gateway has its ends")
    os.kill(broker.pids()["mq-acceptor-1"], signal.SIGKILL)
    wait_until(lambda: len(handovers("mq-acceptor-1")) == 2, "the new acceptor has its end")
    assert handovers("mq-acceptor-0") == [(0, 1)], "nothing changes at the other side of those that died"
    assert len(handovers("mq-gateway")) == 4


def test_a_reload_that_is_short_of_descriptors_is_refused_and_the_broker_goes_on() -> None:
    with running(SINGLE) as server:
        wait_until(lambda: "try it: " in server.said(), "it has begun")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "read anew" in server.said(), "what a reload needs has been loaded")
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (8, hard))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "cannot reload: Too many open files" in server.said(), "it is refused", 20)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.said().count("read anew") == 2, "it is done")
        assert server.terminate() == 0


def test_the_first_lines_say_where_messages_are_and_how_to_try_it(start: Start) -> None:
    broker = start("--workers", "1", "--shards", "8")
    assert "messages are kept in memory only, in 8 shards of 1 worker and 1 acceptor" in broker.said()
    assert re.search(r"try it: printf '.*' \| nc 127\.0\.0\.1 \d+", broker.said())


def test_a_killed_worker_is_back_soon_with_new_rings_and_nobody_else_is_disturbed(start: Start) -> None:
    broker = start("--workers", "2", "--acceptors", "2")
    before = broker.pids()
    broker.ask()
    killed_at = time.monotonic()
    broker.kill("mq-worker-1")
    wait_until(lambda: "mq-worker-1 is back" in broker.said(), "it is back")
    assert time.monotonic() - killed_at < OUTAGE_S
    wait_until(lambda: len(broker.what("mq-acceptor-1")) == 7, "all are told")
    after = broker.pids()
    assert broker.ask()["mq-worker-1"] == after["mq-worker-1"] != before["mq-worker-1"]
    assert {k: v for k, v in after.items() if k != "mq-worker-1"} == {
        k: v for k, v in before.items() if k != "mq-worker-1"
    }
    for a in (0, 1):
        gone, peer = broker.told(f"mq-acceptor-{a}")[-2:]
        assert (gone["do"], gone["worker"]) == ("gone", 1)
        assert (peer["do"], peer["worker"], peer["epoch"]) == ("peer", 1, 2)
    assert f"mq-worker-1 (pid {before['mq-worker-1']}) was killed by SIGKILL" in broker.said()
    assert broker.has_noticed("restarting mq-worker-1")
    assert broker.noticed[-1] == "STATUS=serving"


def test_a_killed_acceptor_is_back_soon_and_serves_what_waited_in_its_queue(start: Start) -> None:
    broker = start("--workers", "2")
    workers = {w: broker.pids()[w] for w in ("mq-worker-0", "mq-worker-1")}
    before = broker.pids()["mq-acceptor-0"]
    os.kill(before, signal.SIGSTOP)
    with socket.create_connection(("127.0.0.1", broker.port()), 10) as waiting:
        os.kill(before, signal.SIGKILL)
        killed_at = time.monotonic()
        line = waiting.makefile().readline()
    assert time.monotonic() - killed_at < OUTAGE_S
    assert f"mq-acceptor-0:{broker.pids()['mq-acceptor-0']}" in line
    assert all(f"{name}:{pid}" in line for name, pid in workers.items())
    for w in workers:
        gone, peer = broker.told(w)[-2:]
        assert (gone["do"], gone["acceptor"]) == ("gone", 0)
        assert (peer["do"], peer["acceptor"], peer["epoch"]) == ("peer", 0, 2)


def test_all_children_killed_at_once_come_back(start: Start) -> None:
    broker = start("--workers", "2", "--acceptors", "2")
    pids = {title: pid for title, pid in broker.pids().items() if title.startswith("mq-")}
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: broker.said().count(" is back (pid ") == 4, "all are back")
    said = broker.ask()
    assert {name for name in said if name.startswith("mq-worker")} == {"mq-worker-0", "mq-worker-1"}
    assert not set(said.values()) & set(pids.values())


def test_segments_in_memory_outlive_their_worker_until_they_are_dropped(start: Start) -> None:
    broker = start("--workers", "1", does={"mq-worker-0": "keep"})
    broker.kill("mq-worker-0")
    wait_until(lambda: "mq-worker-0 is back" in broker.said(), "it is back")
    told = [entry for entry in broker.told("mq-worker-0") if entry["pid"] == broker.pids()["mq-worker-0"]]
    assert [entry["do"] for entry in told] == ["start", "peer", "segment", "segment", "go"]
    assert [(entry["shard"], entry["segment"]) for entry in told[2:4]] == [(0, 2), (0, 3)]
    assert f"recovered {2 * len('segment 2')} messages" in broker.said()  # it read what was kept


def test_a_child_that_dies_again_and_again_ends_the_broker_with_a_clear_message(start: Start) -> None:
    broker = start("--workers", "2")
    (broker.directory / "mq-worker-1.does").write_text("die")
    broker.kill("mq-worker-1")
    assert broker.ends(20) == 1
    assert "giving up: mq-worker-1 died 6 times within 20 s" in broker.said()
    assert broker.what("mq-worker-0")[-1] == "stop"
    wait_until(lambda: all_gone(broker.seen), "nothing is left")


def test_a_child_that_never_comes_up_ends_the_broker(start: Start) -> None:
    broker = start("--workers", "1", does={"mq-worker-0": "die"}, ready=False)
    assert broker.ends(20) == 1
    assert "giving up: mq-worker-0" in broker.said()
    assert not broker.told("mq-acceptor-0")


def test_a_child_that_says_what_it_should_not_is_replaced(start: Start) -> None:
    broker = start("--workers", "1")
    does = broker.directory / "mq-worker-0.does"
    does.write_text("babble")
    broker.kill("mq-worker-0")
    wait_until(lambda: "sent what it should not" in broker.said(), "it is noticed")
    does.unlink()
    wait_until(lambda: "mq-worker-0 is back" in broker.said(), "it is back")
    assert broker.ask()["mq-worker-0"] == broker.pids()["mq-worker-0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_acceptors_then_workers_and_exits_0(start: Start, number: signal.Signals) -> None:
    broker = start("--workers", "2", "--acceptors", "2")
    os.killpg(broker.process.pid, number)  # as a terminal does, and systemd: to everybody
    assert broker.ends() == 0, broker.said()
    stops = {title: broker.told(title)[-1] for title in broker.pids() or ("mq-worker-0", "mq-acceptor-0")}
    assert all(entry["do"] == "stop" for entry in stops.values())
    assert stops["mq-acceptor-0"]["at"] < stops["mq-worker-0"]["at"]
    wait_until(lambda: all_gone(broker.seen), "nothing is left")


def test_nobody_connects_any_more_while_it_stops(start: Start) -> None:
    """Not to be left waiting in the queue of a socket that nobody will serve."""
    lingers = {"mq-acceptor-0": "linger", "mq-acceptor-1": "linger"}
    broker = start("--workers", "1", "--acceptors", "2", does=lingers)
    port = broker.port()
    broker.process.terminate()
    wait_until(lambda: "stop" in broker.what("mq-acceptor-0"), "the acceptor is told")
    for _ in range(8):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)


def test_nobody_connects_while_workers_stop_though_an_acceptor_listened_only_after_the_signal(start: Start) -> None:
    """One that has just been started hears first that it is to listen."""
    ports = free_port(), free_port()
    wanted = ("--listen", f"nats://127.0.0.1:{ports[0]}", "--listen", f"http://127.0.0.1:{ports[1]}")
    does = {"mq-acceptor-0": "load", "mq-worker-0": "linger"}
    broker = start("--workers", "1", *wanted, does=does, ready=False)
    wait_until(lambda: "start" in broker.what("mq-acceptor-0"), "the acceptor loads", 20)
    broker.process.terminate()
    wait_until(lambda: broker.has_noticed("STOPPING=1"), "it stops")
    (broker.directory / "mq-acceptor-0.does").unlink()
    wait_until(lambda: "stop" in broker.what("mq-worker-0"), "the worker is told")
    assert {"listen", "go"} < set(broker.what("mq-acceptor-0"))
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)


def test_whoever_can_connect_to_a_protocol_can_connect_to_its_monitoring(start: Start) -> None:
    """As at a nats-server. A client of a gateway that has not listened yet waits."""
    ports = free_port(), free_port()
    wanted = ("--listen", f"nats://127.0.0.1:{ports[0]}", "--listen", f"http://127.0.0.1:{ports[1]}")
    broker = start("--workers", "1", *wanted, does={"mq-gateway": "load"}, ready=False)
    wait_until(lambda: "go" in broker.what("mq-acceptor-0"), "the acceptor serves", 20)
    with socket.create_connection(("127.0.0.1", ports[1]), 20) as early:
        (broker.directory / "mq-gateway.does").unlink()
        assert "mq-gateway:" in early.makefile().readline()


def test_signals_meant_for_the_supervisor_do_not_hurt_a_child(start: Start) -> None:
    broker = start("--workers", "1")
    before = broker.pids()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(before["mq-worker-0"], number)
        os.kill(before["mq-acceptor-0"], number)
    assert broker.ask()["mq-worker-0"] == before["mq-worker-0"]
    assert broker.pids() == before


def test_a_second_signal_kills_what_does_not_stop(start: Start) -> None:
    broker = start("--workers", "1", does={"mq-worker-0": "linger"})
    broker.process.terminate()
    wait_until(lambda: "stop" in broker.what("mq-worker-0"), "the worker is told")
    broker.process.terminate()  # at once: still the same wish
    time.sleep(0.6)
    assert broker.process.poll() is None

    def has_ended() -> bool:
        """However late it took note of the first."""
        broker.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.process.wait(0.6)
        return broker.process.returncode is not None

    wait_until(has_ended, "it has ended")
    assert broker.ends() == 1
    assert "SIGTERM again: killing mq-worker-0" in broker.said()
    wait_until(lambda: all_gone(broker.seen), "nothing is left")


def test_what_does_not_stop_in_time_is_killed(start: Start) -> None:
    broker = start("--workers", "1", "--set", "broker.stop-timeout=300ms", does={"mq-acceptor-0": "linger"})
    broker.process.terminate()
    assert broker.ends() == 1
    assert "not stopped within 0.3 s: killing mq-acceptor-0, mq-worker-0" in broker.said()
    wait_until(lambda: all_gone(broker.seen), "nothing is left")


def test_a_stop_says_what_it_waits_for_and_ends_with_0_however_long_it_takes(start: Start) -> None:
    """Longer than the 2 s in which a process has to end that has closed its control socket."""
    lingers = {"mq-worker-0": "linger", "mq-gateway": "close-and-linger"}
    broker = start("--workers", "2", *AT_WORK, does=lingers, SMALL_STOPPING_SAID="0.1")
    broker.process.terminate()
    wait_until(lambda: broker.has_noticed("waiting for mq-gateway"), "it says what it waits for first")
    time.sleep(2.5)
    assert broker.process.poll() is None, broker.said()
    (broker.directory / "mq-gateway.does").unlink()
    wait_until(lambda: "waiting for mq-worker-0;" in broker.said(), "it says what it waits for then")
    (broker.directory / "mq-worker-0.does").unlink()
    assert broker.ends() == 0, broker.said()
    assert "error" not in broker.said()


def test_kill_9_of_the_supervisor_leaves_no_process_behind(start: Start) -> None:
    broker = start("--workers", "3", "--acceptors", "2")
    assert len(broker.seen) >= 5
    broker.process.kill()
    broker.process.wait()
    wait_until(lambda: all_gone(broker.seen), "all are gone")


def test_sigusr1_turns_the_drain_switch_for_good(start: Start) -> None:
    broker = start("--workers", "1")
    assert broker.ask()["draining"] == 0
    broker.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: broker.has_noticed("draining"), "it is drained")
    assert broker.ask()["draining"] == 1
    broker.process.send_signal(signal.SIGUSR1)
    broker.kill("mq-acceptor-0")
    wait_until(lambda: "mq-acceptor-0 is back" in broker.said(), "it is back")
    assert broker.ask()["draining"] == 1


def test_damage_and_a_failing_disk_are_reported(start: Start) -> None:
    broker = start("--workers", "1", does={"mq-worker-0": "damage disk"})
    wait_until(lambda: broker.has_noticed("No space left on device"), "the status says so")
    error = next(line for line in broker.said().splitlines() if "shard 3" in line)
    assert " error mq-supervisor: mq-worker-0: shard 3, segment 7, offset 4096: a record that is not whole" in error


def test_log_json_makes_every_line_an_object(start: Start) -> None:
    broker = start("--workers", "1", "--log-json", does={"mq-worker-0": "damage"})
    broker.kill("mq-worker-0")
    wait_until(lambda: "mq-worker-0 is back" in broker.said(), "it is back")
    entries = [json.loads(line) for line in broker.said().splitlines()]
    damage = next(entry for entry in entries if entry.get("segment") == 7)
    assert (damage["level"], damage["process"], damage["offset"]) == ("error", "mq-supervisor", 4096)


def test_a_data_directory_keeps_its_shards_when_the_number_of_workers_changes(start: Start, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first = start("--workers", "1", "--shards", "5", "--sync", "always", data_dir=data_dir)
    told = first.told("mq-worker-0")[0]
    assert (told["own"], told["data_dir"], told["sync"]) == ([0, 1, 2, 3, 4], str(data_dir), "always")
    assert f"messages are kept in {data_dir}, in 5 shards of 1 worker and 1 acceptor; --sync always" in first.said()
    first.process.terminate()
    assert first.ends() == 0
    start("--workers", "2", data_dir=data_dir)
    told = first.told("mq-worker-1")[0]
    assert (told["own"], told["shards"], told["sync"]) == ([1, 3], 5, "interval")


def test_a_data_directory_in_use_is_one_clear_line(start: Start, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    broker = start("--workers", "1", data_dir=data_dir)
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(data_dir), "--listen", ANY_PORT],
        cwd=ROOT, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"mq-shards: the data directory {data_dir} is in use" in done.stderr
    assert done.stderr.count("\n") == 1
    broker.ask()


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with SO_REUSEPORT"])
def test_a_port_that_is_taken_is_one_clear_line(shared: bool) -> None:
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"beanstalk://127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [*COMMAND, "--memory", "--listen", address],
            cwd=ROOT, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"mq-shards: cannot listen on {address}: Address already in use\n"


def test_more_workers_than_shards_is_one_clear_line() -> None:
    done = subprocess.run(
        [*COMMAND, "--memory", "--workers", "3", "--shards", "2", "--listen", ANY_PORT],
        cwd=ROOT, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "mq-shards: --workers: 3 workers for 2 shards, some would have none\n"


def test_a_child_has_none_of_the_supervisors_descriptors_and_none_of_its_signals(start: Start) -> None:
    broker = start("--workers", "2", "--acceptors", "2", *AT_WORK)
    for title, pid in broker.pids().items():
        listening = [entry for entry in broker.told(title) if entry["do"] in ("listen", "calls")]
        sockets = [path for path in Path(f"/proc/{pid}/fd").iterdir() if str(path.readlink()).startswith("socket:")]
        assert len(sockets) == 1 + len(listening), (title, [path.readlink() for path in sockets])
        kinds = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert not any("eventpoll" in kind or "pidfd" in kind for kind in kinds), (title, kinds)
        ignored = int(re.findall(r"SigIgn:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())[0], 16)
        assert all(ignored >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
