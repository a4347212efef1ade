"""When the supervisor starts the gateway, what it is told, and how it is started again; its children are small ones."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import time
from pathlib import Path

import pytest
from mq_shards.supervisor.restarts import AUXILIARY_DELAY_S, delay_after

from tests.servers import free_port, wait_until
from tests.supervisor.small_broker import AT_WORK, HTTP_ANY_PORT, NSQ_ANY_PORT, OUTAGE_S, STATSD, Start


def test_the_gateway_is_told_what_an_acceptor_is_and_has_the_http_sockets_to_itself(start: Start) -> None:
    broker = start("--workers", "2", "--acceptors", "2", *AT_WORK, *HTTP_ANY_PORT)
    told, acceptor = broker.told("mq-gateway"), broker.told("mq-acceptor-1")
    calls = [entry for entry in told if entry["do"] == "calls"]
    assert [(entry["acceptor"], entry["fds"]) for entry in calls] == [(0, 1), (1, 1)]
    told = [entry for entry in told if entry["do"] != "calls"]
    assert [entry["do"] for entry in told] == ["start", "peer", "peer", "listen", "listen", "go"]
    assert [entry["protocol"] for entry in told[3:5]] == ["http", "http"]
    assert [entry["protocol"] for entry in acceptor if entry["do"] == "listen"] == ["beanstalk", "nsq"]
    assert all(entry["fds"] == 1 for entry in told[3:5])
    start_, first, second = told[:3]
    assert (start_["index"], start_["fds"], start_["title"]) == (2, 2, "mq-gateway")
    assert {k: v for k, v in start_.items() if k in acceptor[0] and k not in ("index", "title", "pid", "at")} == {
        k: v for k, v in acceptor[0].items() if k not in ("index", "title", "pid", "at")
    }
    addresses = [(entry["protocol"], entry["host"], entry["port"]) for entry in start_["addresses"]]
    said = re.findall(r"listening on (.*)://(.*):(\d+)", broker.said())
    assert [(name, host, str(port)) for name, host, port in addresses] == said
    assert [name for name, _, _ in addresses] == ["beanstalk", "nsq", "http", "http"]
    assert "addresses" not in acceptor[0]
    assert start_["data_dir"] is None
    assert {first["worker"], second["worker"]} == {0, 1}
    assert (first["fds"], first["epoch"]) == (3, 1)
    worker = broker.told("mq-worker-0")
    assert worker[0]["acceptors"] == 3
    assert sorted(entry["acceptor"] for entry in worker if entry["do"] == "peer") == [0, 1, 2]


def test_http_is_answered_by_the_gateway_and_nsq_by_an_acceptor_through_rings_to_all_workers(start: Start) -> None:
    broker = start("--workers", "2", *AT_WORK)
    pids = broker.pids()
    workers = {name: pids[name] for name in ("mq-worker-0", "mq-worker-1")}
    assert broker.ask("http") == {"mq-gateway": pids["mq-gateway"], "draining": 0, **workers}
    assert broker.ask("nsq") == {"mq-acceptor-0": pids["mq-acceptor-0"], "draining": 0, **workers}


@pytest.mark.parametrize(
    ("options", "wanted", "at_once"),
    [
        ([], False, False),
        ([*NSQ_ANY_PORT], False, False),
        ([*HTTP_ANY_PORT], True, False),
        ([*NSQ_ANY_PORT, "--set", "nsq.lookupd-tcp-address=127.0.0.1:4160"], True, True),
        ([*NSQ_ANY_PORT, *STATSD], True, True),
        ([*STATSD], False, False),
    ],
    ids=["beanstalk", "nsq", "http", "lookupd", "statsd", "no nsq"],
)
def test_a_gateway_runs_only_when_there_is_work_for_it(
    start: Start, options: list[str], wanted: bool, at_once: bool
) -> None:
    broker = start("--workers", "1", *options)
    assert ("mq-gateway" in broker.pids()) == at_once
    assert broker.told("mq-worker-0")[0]["acceptors"] == 1 + wanted


def test_ready_waits_for_the_gateway(start: Start) -> None:
    port = free_port()
    options = ("--workers", "1", *AT_WORK, "--listen", f"beanstalk://127.0.0.1:{port}")
    broker = start(*options, does={"mq-gateway": "hesitate"}, ready=False)
    wait_until(lambda: "go" in broker.what("mq-gateway"), "the gateway is told to go", 20)
    wait_until(lambda: "go" in broker.what("mq-acceptor-0"), "the acceptor listens", 20)
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        assert connection.makefile().readline().startswith("mq-acceptor-0:")  # it said that it is ready before
    for times in (1, 2):  # and when the supervisor has done what came with the first of these, it has heard that
        broker.process.send_signal(signal.SIGUSR1)
        wait_until(lambda times=times: broker.said().count("SIGUSR1: drain mode") == times, "the signal is handled")
    assert not broker.has_noticed("READY=1")
    assert "listening on" not in broker.said()
    (broker.directory / "mq-gateway.does").unlink()
    broker.wait_until_ready()
    assert "listening on http://" in broker.said()


def test_a_killed_gateway_is_back_soon_and_serves_what_waited_in_its_queue(start: Start) -> None:
    broker = start("--workers", "2", *AT_WORK)
    before = broker.pids()
    os.kill(before["mq-gateway"], signal.SIGSTOP)
    with socket.create_connection(("127.0.0.1", broker.port("http")), 10) as waiting:
        os.kill(before["mq-gateway"], signal.SIGKILL)
        killed_at = time.monotonic()
        line = waiting.makefile().readline()
    assert time.monotonic() - killed_at < OUTAGE_S
    after = broker.pids()
    assert f"mq-gateway:{after['mq-gateway']}" in line
    assert {k: v for k, v in after.items() if k != "mq-gateway"} == {
        k: v for k, v in before.items() if k != "mq-gateway"
    }
    for worker in ("mq-worker-0", "mq-worker-1"):
        assert f"{worker}:{after[worker]}" in line
        gone, peer = broker.told(worker)[-2:]
        assert (gone["do"], gone["acceptor"]) == ("gone", 1)
        assert (peer["do"], peer["acceptor"], peer["epoch"]) == ("peer", 1, 2)
    wait_until(lambda: "mq-gateway is back" in broker.said(), "it is back")


def test_an_acceptor_and_the_gateway_have_a_socket_for_calls_as_long_as_both_live(start: Start) -> None:
    def calls(title: str) -> list[tuple[int | None, int]]:
        told = [entry for entry in broker.told(title) if entry["do"] == "calls"]
        return [(entry.get("acceptor"), entry["fds"]) for entry in told]

    broker = start("--workers", "1", "--acceptors", "2", *AT_WORK)
    assert broker.told("mq-acceptor-0")[0]["gateway"] is True
    # They may have said that they are ready before they read it.
    wait_until(lambda: calls("mq-acceptor-0") == calls("mq-acceptor-1") == [(None, 1)], "the acceptors have theirs")
    broker.kill("mq-acceptor-1")
    wait_until(lambda: calls("mq-gateway") == [(0, 1), (1, 1), (1, 1)], "the gateway has one to the new acceptor")
    assert calls("mq-acceptor-0") == [(None, 1)], "between others nothing changes"
    broker.kill("mq-gateway")
    wait_until(lambda: len(calls("mq-gateway")) == 5, "the new gateway has one to each")
    wait_until(lambda: calls("mq-acceptor-0") == [(None, 1)] * 2, "and so has the first acceptor")
    wait_until(lambda: calls("mq-acceptor-1") == [(None, 1)] * 3, "and the second")


def test_the_gateway_gets_new_rings_to_a_worker_that_died(start: Start) -> None:
    broker = start("--workers", "1", *AT_WORK)
    broker.kill("mq-worker-0")
    wait_until(lambda: broker.what("mq-gateway")[-2:] == ["gone", "peer"], "it is told")
    assert broker.ask("http")["mq-worker-0"] == broker.pids()["mq-worker-0"]


def test_a_gateway_begins_when_the_first_comes_to_it_and_knows_the_workers_of_then(start: Start) -> None:
    broker = start("--workers", "1", "--acceptors", "2", *HTTP_ANY_PORT)
    for title in ("mq-worker-0", "mq-acceptor-1"):
        broker.kill(title)
        wait_until(lambda title=title: f"{title} is back" in broker.said(), "it is back")
    assert "mq-gateway" not in broker.pids()
    said = broker.ask("http")
    assert {name: said[name] for name in ("mq-gateway", "mq-worker-0")} == {
        name: broker.pids()[name] for name in ("mq-gateway", "mq-worker-0")
    }
    told = [entry["do"] for entry in broker.told("mq-gateway")]
    assert told == ["start", "peer", "calls", "calls", "listen", "go"]
    broker.kill("mq-gateway")
    wait_until(lambda: "mq-gateway is back" in broker.said(), "it does not wait a second time")


def test_a_gateway_that_fails_at_its_first_client_is_tried_again_and_that_client_is_served(start: Start) -> None:
    broker = start("--workers", "1", *HTTP_ANY_PORT, does={"mq-gateway": "die"})
    with socket.create_connection(("127.0.0.1", broker.port("http")), 20) as first:
        wait_until(lambda: "mq-gateway died 3 times" in broker.said(), "it fails", 20)
        assert broker.ask()["mq-worker-0"] == broker.pids()["mq-worker-0"]
        (broker.directory / "mq-gateway.does").unlink()
        assert "mq-gateway:" in first.makefile().readline()


def test_a_gateway_that_hangs_while_it_loads_is_replaced(start: Start) -> None:
    limit = ("--set", "broker.hang-timeout=1s")
    broker = start("--workers", "1", *limit, *HTTP_ANY_PORT, does={"mq-gateway": "load"})
    with socket.create_connection(("127.0.0.1", broker.port("http")), 20) as first:
        wait_until(lambda: "hangs: killing it" in broker.said(), "it is noticed", 20)
        (broker.directory / "mq-gateway.does").unlink()
        assert "mq-gateway:" in first.makefile().readline()


def test_a_stop_does_not_wait_for_a_gateway_that_has_not_begun_nor_lets_it_begin(start: Start) -> None:
    broker = start("--workers", "1", *HTTP_ANY_PORT, does={"mq-worker-0": "linger"})
    port = broker.port("http")
    broker.process.terminate()
    wait_until(lambda: "stop" in broker.what("mq-worker-0"), "the worker is told")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
    (broker.directory / "mq-worker-0.does").unlink()
    assert broker.ends() == 0, broker.said()
    assert not broker.told("mq-gateway")


def test_a_gateway_whose_start_fails_half_way_is_tried_again_ever_more_rarely(start: Start) -> None:
    broker = start("--workers", "1", *AT_WORK)
    highest = max(int(path.name) for path in Path(f"/proc/{broker.process.pid}/fd").iterdir())
    _, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    # What the dead gateway gives back is enough to fork the next, and too few for all that is made for it.
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (highest - 3, hard))
    broker.kill("mq-gateway")
    said = "mq-gateway died 6 times, is started again in 1.6 s"
    wait_until(lambda: said in broker.said(), "it fails", 20)
    assert re.search(r"mq-gateway \(pid \d+\) was killed by SIGKILL\n.*" + said, broker.said())
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert "mq-gateway" in broker.ask("http")


def test_a_gateway_that_cannot_be_forked_is_tried_again_and_the_rest_is_served(start: Start) -> None:
    broker = start("--workers", "1", *HTTP_ANY_PORT)
    _, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (8, hard))
    with socket.create_connection(("127.0.0.1", broker.port("http")), 20) as first:
        wait_until(lambda: broker.said().count("mq-gateway cannot be started: Too many open files") > 1, "it fails", 20)
        assert broker.ask()["mq-worker-0"] == broker.pids()["mq-worker-0"]
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert "mq-gateway:" in first.makefile().readline()
    broker.process.terminate()
    assert broker.ends() == 0


def test_the_gateway_stops_before_the_workers(start: Start) -> None:
    broker = start("--workers", "1", *AT_WORK, does={"mq-gateway": "linger"})
    broker.process.terminate()
    wait_until(lambda: "stop" in broker.what("mq-gateway"), "the gateway is told")
    wait_until(lambda: "mq-acceptor-0" not in broker.pids(), "the acceptor has stopped")
    assert "stop" not in broker.what("mq-worker-0")
    (broker.directory / "mq-gateway.does").unlink()
    assert broker.ends() == 0, broker.said()
    assert broker.what("mq-worker-0")[-1] == "stop"


def test_a_gateway_that_cannot_start_is_tried_again_and_the_rest_is_served(start: Start) -> None:
    broker = start("--workers", "1", *AT_WORK, does={"mq-gateway": "die"})
    wait_until(lambda: "mq-gateway died 7 times" in broker.said(), "more often than a worker may", 20)
    assert broker.ask()["mq-worker-0"] == broker.pids()["mq-worker-0"]
    assert "served without it" in broker.said()
    due = [entry["delay_s"] for entry in broker.told("mq-acceptor-0") if entry["do"] == "calls-due"]
    assert due[:7] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert broker.has_noticed("STATUS=restarting mq-gateway")
    with socket.create_connection(("127.0.0.1", broker.port("http")), 20) as client:
        client.settimeout(2)  # it is started again later
        assert client.recv(1) == b"", "it lets nobody wait"
    (broker.directory / "mq-gateway.does").unlink()
    wait_until(lambda: "mq-gateway is back" in broker.said(), "it is back", 20)
    assert broker.ask("http")["mq-gateway"] == broker.pids()["mq-gateway"]
    broker.process.terminate()
    assert broker.ends() == 0


def test_a_gateway_that_is_killed_again_and_again_is_back_before_requests_give_up(start: Start) -> None:
    broker = start("--workers", "1", *AT_WORK)
    for times in range(1, 7):
        broker.kill("mq-gateway")
        wait_until(lambda times=times: broker.said().count("mq-gateway is back") == times, "it is back")
    assert "mq-gateway died 6 times, is started again in 0.8 s" in broker.said()


def test_the_gateway_is_tried_less_and_less_often() -> None:
    delays = [delay_after(deaths, AUXILIARY_DELAY_S) for deaths in range(1, 20)]
    assert delays[:8] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert delays[-1] == 30.0
