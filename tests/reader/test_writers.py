"""Writers: a batch is published once, whatever is repeated, reordered or killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.pipeline.decisions import PUBLISHING, Decision, save
from mq_shards.gateway.pipeline.staging import Stamp

from tests.nsq.api import Reply, call, post
from tests.reader.broker import Broker, encode, section, started
from tests.reader.small_disk import small_disk
from tests.servers import wait_until

TOPICS = [f"topic-{n}" for n in range(12)]
RECOVERY_SECONDS = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Use names of your own."""
    with started(tmp_path_factory.mktemp("data")) as broker:
        yield broker


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [sent.body for sent in broker.read_all(topic)]


def staged(broker: Broker, name: str, data: bytes) -> dict[str, int]:
    reply = broker.stage(name, 0, data)
    assert (reply.status, reply.json) == (200, {"bytes": len(data)}), reply
    return {name: len(data)}


def test_a_batch_is_published_in_the_order_of_its_files_and_repeating_it_publishes_nothing(broker: Broker) -> None:
    files = {}
    expected: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    for number in (3, 1, 2):
        messages = [(TOPICS[n % 12], b"%d of file %d" % (n, number)) for n in range(600)]
        files |= staged(broker, f"order-{number}", encode(sorted(messages), most=200))
        for topic, body in sorted(messages):
            expected[topic].append(body)
    assert broker.topic("topic-1") == {}, "nobody sees what is staged"
    for _ in range(3):
        reply = broker.decide("order", 7, files)
        assert reply.status == 200
        found = reply.json
        assert (found["writer"], found["batch"], found["state"], found["messages"]) == ("order", 7, "published", 1800)
    assert {topic: bodies(broker, topic) for topic in TOPICS} == expected
    assert broker.call("DELETE", "/v1/staged/order-1").status == 404, "it is gone"
    assert broker.json("/v1/writers/order") == reply.json
    listed = broker.json("/v1/writers")["writers"]
    assert isinstance(listed, list)
    assert reply.json in listed


def test_only_a_higher_batch_is_published(broker: Broker) -> None:
    for batch, content, last in ((5, b"five", 5), (4, b"four", 5), (5, b"other", 5), (0, b"0", 5), (9, b"nine", 9)):
        reply = broker.decide("higher", batch, staged(broker, "higher", section("higher", content)))
        assert (reply.status, reply.json["batch"], reply.json["state"]) == (200, last, "published")
        assert broker.call("DELETE", "/v1/staged/higher").status == 404, "published or dropped"
    assert bodies(broker, "higher") == [b"five", b"nine"]


def test_an_empty_batch_is_one_too(broker: Broker) -> None:
    assert broker.decide("empty", 1, {}).json["messages"] == 0
    assert broker.decide("empty", 2, staged(broker, "empty", b"")).json["messages"] == 0
    assert broker.decide("empty", 2, staged(broker, "empty", section("empty", b"x"))).json["messages"] == 0
    assert broker.topic("empty") == {}


def test_what_was_staged_must_be_as_the_writer_says(broker: Broker) -> None:
    one = staged(broker, "said-1", section("said", b"x") * 2)
    for wrong, status in (
        ({"said-2": 10}, 404),
        ({"said-1": one["said-1"] - 1}, 409),
        ({"said-1": one["said-1"] // 2}, 409),
        ({"said-1": one["said-1"], "said-3": 0}, 404),
    ):
        assert broker.decide("said", 1, wrong).status == status
    assert broker.decide("said", 1, {"said-1": 1}).json["bytes"] == one["said-1"]
    assert broker.call("GET", "/v1/writers/said").status == 404, "nothing was decided"
    assert broker.topic("said") == {}
    assert broker.stage("said-1", one["said-1"], section("said", b"y")).status == 200, "nobody claims it"
    assert broker.decide("said", 1, {"said-1": one["said-1"] // 2 * 3}).json["messages"] == 3


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"[]", b"{}", b'{"batch": 1}', b'{"batch": -1, "staged": []}', b'{"batch": true, "staged": []}',
        b'{"batch": 1.0, "staged": []}', b'{"batch": 9223372036854775808, "staged": []}',
        b'{"batch": 1, "staged": {}}', b'{"batch": 1, "staged": ["x"]}', b'{"batch": 1, "staged": [{"name": "x"}]}',
        b'{"batch": 1, "staged": [{"name": 1, "bytes": 1}]}', b'{"batch": 1, "staged": [], "once": 1}',
        b'{"batch": 1, "staged": [{"name": "x", "bytes": 1}, {"name": "x", "bytes": 1}]}',
        b'{"batch": 1, "staged": [], "twice": true}',
    ],
)  # fmt: skip
def test_what_no_writer_says_is_refused(broker: Broker, said: bytes) -> None:
    assert broker.call("PUT", "/v1/writers/nonsense", said).status == 400
    assert broker.state("nonsense") is None


def test_a_writer_that_was_deleted_begins_anew(broker: Broker) -> None:
    assert broker.call("DELETE", "/v1/writers/anew").status == 404
    for _ in range(2):
        broker.decide("anew", 3, staged(broker, "anew", section("anew", b"x")))
        assert broker.decide("anew", 2, staged(broker, "anew", section("anew", b"x"))).json["batch"] == 3
        assert broker.call("DELETE", "/v1/writers/anew").status == 200
    assert bodies(broker, "anew") == [b"x"] * 2


def test_repeated_and_reordered_batches_of_many_clients_are_there_once(broker: Broker) -> None:
    """Each batch has several attempts with files of their own; which one is published nobody knows before."""
    batches, writers, attempts = 12, 4, 3

    def drive(seed: int) -> None:
        rng = random.Random(seed)
        writer, attempt = seed % writers, seed // writers
        for batch in range(batches):
            if rng.random() < 0.2:
                continue
            files = {}
            for task in range(3):
                body = b"%d %d %d %d" % (writer, batch, attempt, task)
                data = encode([(rng.choice(("many-1", "many-2")), body) for _ in range(5)], most=12)
                files |= staged(broker, f"many-{writer}-{batch}-{attempt}-{task}", data)
            for _ in range(rng.choice((1, 1, 2))):
                reply = broker.decide(f"many-{writer}", batch, files)
                assert reply.status == 200 and reply.json["batch"] >= batch, reply

    with ThreadPoolExecutor(writers * attempts) as threads:
        list(threads.map(drive, range(writers * attempts)))
    found = Counter(body for topic in ("many-1", "many-2") for body in bodies(broker, topic))
    assert set(found.values()) == {5}
    by_batch: dict[tuple[bytes, ...], set[tuple[bytes, ...]]] = {}
    for body in found:
        writer, batch, attempt, task = body.split()
        by_batch.setdefault((writer, batch), set()).add((attempt, task))
    for published in by_batch.values():
        assert len(published) == 3 and len({attempt for attempt, _ in published}) == 1
    assert len(by_batch) >= writers * (batches // 2)


# --- while a worker stands still ------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped(broker: Broker, comm: str) -> Iterator[int]:
    pid = broker.server.pid_of(comm)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def topic_of_worker(worker: int) -> str:
    """Two workers have the shards in turn."""
    import crc32c

    return next(f"on-{worker}-{n}" for n in range(100) if crc32c.crc32c(f"on-{worker}-{n}".encode()) % 2 == worker)


def decided(data_dir: Path, writer: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((data_dir / "writers" / f"{writer}.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found


def test_what_is_being_published_is_left_alone_and_only_so_many_batches_are(tmp_path: Path) -> None:
    topic = topic_of_worker(0)
    with started(tmp_path) as broker, ThreadPoolExecutor(20) as clients:
        names = [f"w{n:02}" for n in range(17)]
        files = {name: staged(broker, name, section(topic, name.encode())) for name in (*names, "next")}
        with stopped(broker, "mq-worker-0"):
            first = [clients.submit(broker.decide, name, 1, files[name]) for name in names[:14]]
            wait_until(lambda: all(broker.state(name) == "publishing" for name in names[:14]), "they are decided")
            following = clients.submit(broker.decide, "w00", 2, files["next"])  # takes no place yet
            assert broker.decide("x", 1, files["w00"]).status == 409
            first += [clients.submit(broker.decide, name, 1, files[name]) for name in names[14:16]]
            wait_until(lambda: all(broker.state(name) == "publishing" for name in names[14:16]), "they are decided")
            last = clients.submit(broker.decide, names[16], 1, files[names[16]])
            assert broker.stage("w00", files["w00"]["w00"], section(topic, b"more")).status == 409
            assert broker.call("DELETE", "/v1/staged/w00").status == 409
            assert broker.call("DELETE", "/v1/writers/w00").status == 409
            other = staged(broker, "other", section(topic, b"other"))
            again = clients.submit(broker.decide, "w01", 1, {**files["w01"], **other})
            older = clients.submit(broker.decide, "w02", 0, files["w02"])
            wait_until(lambda: broker.call("DELETE", "/v1/staged/other").status == 404, "what was not decided goes")
            assert not any(one.done() for one in (*first, last, following, again, older))
            assert decided(tmp_path, names[16]) == {} and decided(tmp_path, "w00")["batch"] == 1
        assert [one.result().status for one in (*first, last, following, again, older)] == [200] * 20
        assert following.result().json["batch"] == 2
        assert sorted(bodies(broker, topic)) == sorted(name.encode() for name in (*names, "next"))
        assert list((tmp_path / "staged").iterdir()) == []


# --- kill -9 --------------------------------------------------------------------------------------------------------


def large_batch(broker: Broker, files: int, seed: int) -> tuple[dict[str, int], dict[str, list[bytes]]]:
    """Files of many small sections, and what is to be found in each topic."""
    rng, named = random.Random(seed), {}
    expected: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    for file in range(files):
        data = b""
        for _ in range(100):
            topic = rng.choice(TOPICS)
            found = [b"%d %d " % (file, rng.getrandbits(64)) + b"x" * rng.randrange(100) for _ in range(20)]
            expected[topic] += found
            data += section(topic, *found)
        named |= staged(broker, f"large-{file}", data)
    return named, expected


def begin(broker: Broker, clients: ThreadPoolExecutor, files: dict[str, int], batch: int = 0) -> Future[Reply | None]:
    def decide() -> Reply | None:
        try:
            return broker.decide("w", batch, files)
        except (OSError, HTTPException):
            return None

    return clients.submit(decide)


def check(broker: Broker, expected: dict[str, list[bytes]], files: Sequence[str]) -> None:
    wait_until(lambda: answers(broker) and broker.state("w") == "published", "it is published", RECOVERY_SECONDS)
    assert {topic: bodies(broker, topic) for topic in TOPICS} == expected
    wait_until(lambda: all(broker.call("DELETE", f"/v1/staged/{name}").status == 404 for name in files), "they go")


def answers(broker: Broker) -> bool:
    try:
        return broker.call("GET", "/v1/writers").status == 200
    except (OSError, HTTPException):
        return False


def count(broker: Broker) -> int:
    topics = broker.json("/v1/topics")["topics"]
    assert isinstance(topics, list)
    return sum(topic["records"] for topic in topics)


def under_way(data_dir: Path, batch: int = 0) -> bool:
    found = decided(data_dir, "w")
    return (found.get("batch"), found.get("state")) == (batch, "publishing")


def is_half_way(broker: Broker, data_dir: Path, batch: int, records: int) -> bool:
    """More than `records` are there, while one of two workers stands still."""
    return under_way(data_dir, batch) and count(broker) > records


def test_a_process_killed_while_a_batch_is_published(tmp_path: Path) -> None:
    everything: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    with started(tmp_path) as broker, ThreadPoolExecutor(1) as clients:
        for batch, victim in enumerate(("mq-gateway", "mq-worker-0", "mq-worker-1")):
            files, expected = large_batch(broker, 3, batch)
            everything = {topic: before + expected[topic] for topic, before in everything.items()}
            half = partial(is_half_way, broker, tmp_path, batch, count(broker))
            with stopped(broker, "mq-worker-0"):
                asked = begin(broker, clients, files, batch)
                wait_until(half, "half of it is there")
                os.kill(broker.server.pid_of(victim), signal.SIGKILL)
                wait_until(lambda: answers(broker), "the gateway is there")
                assert under_way(tmp_path, batch)
                assert broker.stage("large-0", files["large-0"], section("t", b"x")).status == 409
            wait_until(lambda: answers(broker) and broker.state("w") == "published", "it is", RECOVERY_SECONDS)
            reply = asked.result()
            assert reply is None or reply.status == 200
            assert broker.decide("w", batch, files).json["messages"] == 6000
        check(broker, everything, list(files))


@pytest.mark.parametrize("all_at_once", [True, False], ids=["killed", "stopped"])
def test_a_broker_that_ends_while_a_batch_is_published_goes_on_with_it(tmp_path: Path, all_at_once: bool) -> None:
    with started(tmp_path) as broker, ThreadPoolExecutor(1) as clients:
        files, expected = large_batch(broker, 3, 2)
        with stopped(broker, "mq-worker-0"):
            asked = begin(broker, clients, files)
            wait_until(partial(is_half_way, broker, tmp_path, 0, 0), "half of it is there")
            if all_at_once:
                broker.server.kill()
            else:
                broker.server.process.terminate()
                reply = asked.result()  # nobody waits for the end of it
                assert reply is not None and (reply.status, reply.json["state"]) == (202, "publishing")
        if not all_at_once:
            assert broker.server.process.wait(10) == 0
            broker.server.was_killed = True
    assert under_way(tmp_path)
    with started(tmp_path, "--workers", "3") as broker:
        check(broker, expected, list(files))


def test_processes_killed_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(3)
    with started(tmp_path) as broker, ThreadPoolExecutor(1) as clients:
        files, expected = large_batch(broker, 20, 3)
        begin(broker, clients, files)
        wait_until(lambda: decided(tmp_path, "w") != {}, "it is decided")
        for victim in ("mq-gateway", "mq-worker-0", "mq-gateway", "mq-worker-1"):
            time.sleep(rng.uniform(0, 0.1))  # any moment
            with contextlib.suppress(LookupError):
                os.kill(broker.server.pid_of(victim), signal.SIGKILL)
        check(broker, expected, list(files))


def test_a_gateway_that_died_before_it_removed_what_was_published(tmp_path: Path) -> None:
    """It is removed, but not what was staged anew under the same name."""
    with started(tmp_path) as broker:
        for name in ("left", "anew"):
            files = staged(broker, name, section("t", b"x"))
            path = tmp_path / "staged" / name
            os.link(path, tmp_path / "kept")
            broker.decide(name, 1, files)
            (tmp_path / "kept").rename(path)
        (tmp_path / "staged" / "anew").write_bytes(section("t", b"y"))
        os.kill(broker.server.pid_of("mq-gateway"), signal.SIGKILL)
        wait_until(lambda: not (tmp_path / "staged" / "left").exists() and answers(broker), "it is removed")
        assert broker.decide("anew", 2, {"anew": len(section("t", b"y"))}).status == 200
        assert bodies(broker, "t") == [b"x", b"x", b"y"]


# --- limits and modes -----------------------------------------------------------------------------------------------


def test_writers_of_one_batch_are_forgotten_and_of_all_there_are_not_too_many(tmp_path: Path) -> None:
    hour_ago = time.time_ns() - 3_700_000_000_000
    with started(tmp_path) as broker:
        for name, once in (("once", True), ("often", False), ("lately", True)):
            broker.decide(name, 1, staged(broker, name, section("t", b"x")), once=once)
        broker.server.terminate()
        broker.server.was_killed = True
    for name in ("once", "often"):
        path = tmp_path / "writers" / f"{name}.json"
        path.write_text(json.dumps({**decided(tmp_path, name), "changed_ns": hour_ago}))
    often = decided(tmp_path, "often")
    for n in range(4094):
        (tmp_path / "writers" / f"n{n}.json").write_text(json.dumps({**often, "writer": f"n{n}", "staged": []}))
    (tmp_path / "writers" / "damaged.json").write_text("{")
    with started(tmp_path) as broker:
        wait_until(lambda: broker.state("once") is None, "it is forgotten")
        assert (broker.state("often"), broker.state("lately"), broker.state("n7")) == ("published",) * 3
        reply = broker.decide("one-more", 1, {})
        assert (reply.status, "4096" in reply.json["error"]) == (503, True)
        assert broker.decide("n7", 2, {}).status == 200
        for reply in (broker.decide("damaged", 1, {}), broker.call("GET", "/v1/writers/damaged")):
            assert (reply.status, "damaged" in reply.json["error"]) == (500, True)
        assert broker.call("DELETE", "/v1/writers/n8").status == 200
        assert broker.call("DELETE", "/v1/writers/damaged").status == 200
        assert broker.decide("damaged", 1, {}).status == 200


def test_a_batch_waits_while_the_log_has_no_room(tmp_path: Path) -> None:
    one_shard = ("--shards", "1", "--workers", "1", "--set", "log.retention-bytes=0", "--set", "log.retention-hours=0")
    with small_disk(tmp_path, "100m"), started(tmp_path, *one_shard) as broker, ThreadPoolExecutor(1) as clients:
        expected = [b"%d" % n + b"x" * 1000 for n in range(5000)]
        files = staged(broker, "large", encode([("u", body) for body in expected], most=100_000))
        while broker.call("POST", "/v1/publish", section("t", b"x" * 1_000_000)).status == 200:
            pass
        asked = clients.submit(broker.decide, "w", 1, files)
        wait_until(lambda: "refuses writes" in broker.call("GET", "/v1/writers/w").json.get("error", ""), "it says why")
        post(broker.server, "/topic/empty?topic=t")
        assert asked.result().json["state"] == "published"
        assert "error" not in broker.json("/v1/writers/w")
        assert bodies(broker, "u") == expected
        assert broker.server.said().count("writer w, batch 1 waits") == 1


def test_batches_that_can_never_be_published_end_say_so_and_hold_no_place(tmp_path: Path) -> None:
    """As a broker before this one decided them: more of them than there are places."""
    names = [f"f{n}" for n in range(20)]
    with started(tmp_path):
        pass
    (tmp_path / "staged").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        data = section("t", b"%d" % number) + section("a" * 1030, b"x")
        if number % 2 == 0:
            (tmp_path / "staged" / name).write_bytes(data)  # the others have lost theirs
        stamp = Stamp(name, len(data), 0)
        save(tmp_path, Decision(f"w{number}", number, 1, PUBLISHING, 2, False, 0, (stamp,)))
    with started(tmp_path) as broker:
        wait_until(lambda: all(broker.state(f"w{n}") == "failed" for n in range(20)), "they have ended", 20)
        assert "1024 bytes" in str(broker.json("/v1/writers/w0")["error"])
        assert "cannot be read" in str(broker.json("/v1/writers/w1")["error"])
        reply = broker.decide("w0", 1, {"f0": 1})
        assert (reply.status, reply.json["state"]) == (409, "failed"), "whoever asks for it again is told"
        assert broker.decide("w0", 2, staged(broker, "new", section("t", b"new"))).status == 200, "a writer goes on"
        assert broker.server.said().count("has failed") == 20
        assert bodies(broker, "t")[-1] == b"new"


def test_a_broker_that_drains_decides_nothing_new(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        before = staged(broker, "before", section("t", b"x"))
        assert broker.decide("w", 1, before).status == 200
        os.kill(broker.server.process.pid, signal.SIGUSR1)
        wait_until(lambda: broker.publish(("drained", b"")).status == 503, "it drains")
        reply = broker.decide("w", 2, staged(broker, "more", section("t", b"y")))
        assert (reply.status, "takes no new messages" in reply.json["error"]) == (503, True)
        assert broker.decide("w", 1, before).json["state"] == "published"
        assert bodies(broker, "t") == [b"x"]


def test_in_memory_a_batch_is_published_once_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started(None) as broker:
        files = staged(broker, "one", section("t", b"x", b"y"))
        assert len(list(tmp_path.glob("mq-shards-*/staged/one"))) == 1
        assert broker.decide("w", 1, files).json["messages"] == 2
        files = staged(broker, "two", section("t", b"z"))
        os.kill(broker.server.pid_of("mq-gateway"), signal.SIGKILL)
        wait_until(lambda: answers(broker), "it is back")
        assert broker.decide("w", 1, {}).json["messages"] == 2
        assert broker.decide("w", 2, files).json["messages"] == 1
        (topic,) = call(broker.server, "GET", "/stats?format=json&topic=t").json["topics"]
        assert topic["message_count"] == 3
        broker.server.terminate()
        broker.server.was_killed = True
    assert list(tmp_path.glob("mq-shards-*")) == []


def test_many_clients_that_ask_for_the_same_batch_at_once(broker: Broker) -> None:
    files = staged(broker, "same", encode([("same", b"%d" % n) for n in range(1000)], most=100))
    barrier = threading.Barrier(8)

    def ask(_: int) -> Reply:
        barrier.wait()
        return broker.decide("same", 1, files)

    with ThreadPoolExecutor(8) as clients:
        assert [(r.status, r.json["messages"]) for r in clients.map(ask, range(8))] == [(200, 1000)] * 8
    assert bodies(broker, "same") == [b"%d" % n for n in range(1000)]
