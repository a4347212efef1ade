"""What was published is not published again, by whatever way it comes."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import MAX, Wire, batch_of, entry_of, metadata, payload_of, send_frame

ON = ["pulsar.deduplication=true"]


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    with running(workers=2, settings=ON) as server:
        yield server


def receipt(wire: Wire, sequence: int, payload: bytes = b"x", *, highest: int | None = None) -> tuple[int, int]:
    """Where it went."""
    entry = entry_of(metadata(sequence_id=sequence), payload)
    more = {} if highest is None else {"highest_sequence_id": highest}
    wire.raw(send_frame(1, sequence, entry, **more))
    found = wire.expect("send_receipt")
    assert found.sequence_id == sequence
    return found.message_id.ledgerId, found.message_id.entryId


def entries(wire: Wire, topic: str) -> list[bytes]:
    wire.subscribe(topic, "all", initialPosition=1)
    wire.flow(1000)
    last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id.entryId
    return [payload_of(wire.message()) for _ in range((last + 1) % (1 << 64))]


def test_a_sequence_id_is_published_once(wire: Wire, topic: str) -> None:
    assert wire.producer(topic, producer_name="n").last_sequence_id == -1
    assert [receipt(wire, i, b"%d" % i)[1] for i in (0, 1, 5)] == [0, 1, 2]
    assert [receipt(wire, i) for i in (5, 1, 0, 3)] == [(MAX, MAX)] * 4
    assert receipt(wire, 6, b"6")[1] == 3
    wire.ask("close_producer", producer_id=1)
    assert wire.producer(topic, producer_name="n").last_sequence_id == 6
    assert receipt(wire, 6) == (MAX, MAX)
    assert wire.producer(topic, producer_name="other", producer=2).last_sequence_id == -1
    assert entries(wire, topic) == [b"0", b"1", b"5", b"6"]


def test_of_a_batch_the_highest_counts_and_the_first_is_compared(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer_name="n")
    assert receipt(wire, 0, batch_of(b"a"), highest=9)[1] == 0
    assert receipt(wire, 9, batch_of(b"b"), highest=12) == (MAX, MAX)
    assert receipt(wire, 10, batch_of(b"c"), highest=12)[1] == 1
    wire.ask("close_producer", producer_id=1)
    assert wire.producer(topic, producer_name="n").last_sequence_id == 12


def test_of_chunks_the_last_one_counts(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer_name="n")
    for _ in range(2):
        found = []
        for chunk in range(3):
            head = metadata(sequence_id=4, uuid="u", num_chunks_from_msg=3, chunk_id=chunk, total_chunk_msg_size=3)
            wire.raw(send_frame(1, 4, entry_of(head, b"x"), is_chunk=True))
            found.append(wire.expect("send_receipt").message_id.entryId)
        last = found.pop()
        assert MAX not in found
    assert last == MAX


def test_it_goes_by_the_topic_and_ends_with_it(server: PulsarServer, wire: Wire, topic: str) -> None:
    for name in (topic, f"{topic}-other"):
        wire.producer(name, producer_name="n")
        assert receipt(wire, 7)[1] == 0
        wire.ask("close_producer", producer_id=1)
    url = f"http://{server.http}/admin/v2/persistent/public/default/{topic}"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()
    assert wire.producer(topic, producer_name="n").last_sequence_id == -1
    assert receipt(wire, 7) != (MAX, MAX)


def test_it_outlives_a_crash(tmp_path: Path) -> None:
    with running(data_dir=tmp_path, settings=ON) as server, Wire(server.port) as wire:
        wire.connect().producer("t", producer_name="n")
        sent = [receipt(wire, i) for i in range(5)]
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        wire.expect("close_producer")
        assert wire.producer("t", producer_name="n").last_sequence_id == 4
        assert receipt(wire, 4) == (MAX, MAX)
        assert receipt(wire, 5) == (sent[0][0], 5)


@pytest.mark.parametrize("what", ["acceptor", "broker"])
def test_a_name_that_was_given_to_one_is_never_given_to_another(tmp_path: Path, what: str) -> None:
    """Who has it would be refused, or what it says would be taken for what the other has said."""
    with ExitStack() as stack:
        server = stack.enter_context(running(data_dir=tmp_path, settings=ON))
        wire = stack.enter_context(Wire(server.port)).connect()
        names = {str(wire.producer("t").producer_name)}
        sent = [receipt(wire, i) for i in range(5)]
        if what == "broker":
            server.kill()
            server = stack.enter_context(running(data_dir=tmp_path, settings=ON))
        else:
            os.kill(server.pid_of("mq-acceptor-0"), signal.SIGKILL)
        assert wire.is_closed()
        other = stack.enter_context(Wire(server.port)).connect()
        for producer in range(1, 4):
            made = other.producer("t", producer=producer)
            assert made.last_sequence_id == -1
            names.add(str(made.producer_name))
        assert len(names) == 4
        assert [receipt(other, i) for i in range(3)] == [(sent[0][0], 5 + i) for i in range(3)]


def post(server: PulsarServer, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://{server.http}/admin/v2/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"},
        method="POST",
    )  # fmt: skip
    urllib.request.urlopen(request).close()


def test_a_namespace_says_whether_and_who_is_there_hears_of_it() -> None:
    with running() as server, Wire(server.port) as wire:
        wire.connect().producer("t", producer_name="n")
        assert [receipt(wire, 1)[1], receipt(wire, 1)[1]] == [0, 1]
        post(server, "namespaces/public/default/deduplication", True)
        deadline = time.monotonic() + 60
        while receipt(wire, 2) != (MAX, MAX):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        post(server, "namespaces/public/default/deduplication", False)
        while receipt(wire, 0) == (MAX, MAX):
            assert time.monotonic() < deadline
            time.sleep(0.05)
