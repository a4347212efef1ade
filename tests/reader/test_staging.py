"""Staged messages: pieces that are repeated, out of place or wrong, limits, and what a dying gateway leaves."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reader.broker import Broker, section, started
from tests.reader.small_disk import fill, small_disk
from tests.servers import wait_until

ONE, TWO, THREE = section("a", b"1"), section("b", b"22", b"2" * 100), section("a", b"333")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[Broker]:
    """Use names of your own."""
    with started(data_dir, "--set", "http.staged-bytes=100000") as broker:
        yield broker


def staged(data_dir: Path, name: str) -> bytes:
    return (data_dir / "staged" / name).read_bytes()


def test_pieces_are_put_one_behind_the_other_and_a_repeated_one_once(broker: Broker, data_dir: Path) -> None:
    at = 0
    for piece in (ONE, TWO, THREE):
        for _ in range(3):
            reply = broker.stage("pieces", at, piece)
            assert (reply.status, reply.json) == (200, {"bytes": at + len(piece)})
        at += len(piece)
    # One that comes again much later changes nothing.
    assert broker.stage("pieces", len(ONE), TWO).json == {"bytes": at}
    assert staged(data_dir, "pieces") == ONE + TWO + THREE


def test_a_piece_beyond_the_end_is_told_where_the_end_is(broker: Broker, data_dir: Path) -> None:
    reply = broker.stage("beyond", 5, ONE)
    assert (reply.status, reply.json["bytes"]) == (409, 0)
    assert not (data_dir / "staged" / "beyond").exists()
    broker.stage("beyond", 0, ONE)
    reply = broker.stage("beyond", len(ONE) + 1, TWO)
    assert (reply.status, reply.json["bytes"]) == (409, len(ONE))
    assert staged(data_dir, "beyond") == ONE


def test_another_piece_takes_the_place_of_what_was_there(broker: Broker, data_dir: Path) -> None:
    broker.stage("instead", 0, ONE + TWO)
    assert broker.stage("instead", len(ONE), THREE).json == {"bytes": len(ONE + THREE)}
    assert staged(data_dir, "instead") == ONE + THREE
    assert broker.stage("instead", 0, TWO).json == {"bytes": len(TWO)}
    assert staged(data_dir, "instead") == TWO


def test_no_piece_is_put_into_the_middle_of_a_section(broker: Broker, data_dir: Path) -> None:
    broker.stage("middle", 0, ONE + TWO)
    for at in (1, len(ONE) - 1, len(ONE) + 1):
        reply = broker.stage("middle", at, THREE)
        assert (reply.status, reply.json["bytes"]) == (409, len(ONE + TWO))
    assert staged(data_dir, "middle") == ONE + TWO


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ONE[:-1], "middle of a section"),
        (ONE + TWO[:5], "middle of its head"),
        (ONE + section("a\nb", b"x"), "not a topic's name"),
        (section("a"), "any messages"),
        (section("a", b"x" * ((5 << 20) + 1)), "more than 5242880"),
        (section("a", *[b"x" * 1000] * 1100), "or one message"),
    ],
)
def test_what_a_worker_would_not_take_is_not_staged(broker: Broker, data_dir: Path, body: bytes, said: str) -> None:
    broker.stage("wrong", 0, ONE)
    reply = broker.stage("wrong", len(ONE), body)
    assert (reply.status, said in reply.json["error"]) == (400, True), reply
    assert staged(data_dir, "wrong") == ONE


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a%2Fb", "a/b", "a%20b", "%C3%A4", "x" * 201])
def test_a_name_that_is_no_file_name_is_refused(broker: Broker, name: str) -> None:
    assert broker.stage(name, 0, ONE).status == 400
    assert broker.call("DELETE", f"/v1/staged/{name}").status == 400
    assert broker.decide(name, 0, {}).status == 400


@pytest.mark.parametrize("at", ["", "-1", "x", "9223372036854775808"])
def test_a_place_that_is_no_number_is_refused(broker: Broker, at: str) -> None:
    assert broker.call("POST", f"/v1/staged/place?at={at}", ONE).status == 400


def test_what_is_staged_can_be_dropped(broker: Broker, data_dir: Path) -> None:
    broker.stage("dropped", 0, ONE)
    assert broker.call("DELETE", "/v1/staged/dropped").status == 200
    assert not (data_dir / "staged" / "dropped").exists()
    assert broker.call("DELETE", "/v1/staged/dropped").status == 404
    assert broker.stage("dropped", len(ONE), TWO).json["bytes"] == 0
    assert broker.stage("dropped", 0, TWO).json == {"bytes": len(TWO)}


def test_all_that_is_staged_has_a_limit(broker: Broker, data_dir: Path) -> None:
    large = section("a", b"x" * 60_000)
    assert broker.stage("limit-1", 0, large).status == 200
    reply = broker.stage("limit-2", 0, large)
    assert (reply.status, "http.staged-bytes" in reply.json["error"]) == (507, True)
    assert not (data_dir / "staged" / "limit-2").exists()
    assert broker.stage("limit-1", 0, large).status == 200, "it takes no more room"
    assert broker.stage("limit-1", 0, section("a", b"y" * 70_000)).status == 200
    broker.call("DELETE", "/v1/staged/limit-1")
    assert broker.stage("limit-2", 0, large).status == 200
    assert broker.decide("limit", 0, {"limit-2": len(large)}).status == 200
    assert broker.stage("limit-3", 0, large).status == 200, "what was published takes none"
    broker.call("DELETE", "/v1/staged/limit-3")


def test_after_a_kill_it_goes_on_where_whole_sections_end(tmp_path: Path) -> None:
    """A write may have been cut anywhere; the client knows only of what was acknowledged."""
    with started(tmp_path) as broker:
        for name, torn in (("part", TWO[:7]), ("all", TWO), ("more", TWO + THREE), ("old", b"")):
            broker.stage(name, 0, ONE)
            with (tmp_path / "staged" / name).open("ab") as file:
                file.write(torn)
        os.utime(tmp_path / "staged" / "old", (time.time() - 90_000,) * 2)
        gateway = broker.server.pid_of("mq-gateway")
        os.kill(gateway, signal.SIGKILL)
        wait_until(lambda: not (tmp_path / "staged" / "old").exists(), "what nobody has touched for a day goes")
        for name in ("part", "all"):
            assert broker.stage(name, len(ONE), TWO).json == {"bytes": len(ONE + TWO)}
            assert staged(tmp_path, name) == ONE + TWO
        assert broker.stage("part", len(ONE + TWO), THREE).status == 200
        assert broker.stage("more", len(ONE), THREE).json == {"bytes": len(ONE + THREE)}
        assert broker.stage("more", len(ONE + THREE), TWO).status == 200
        assert staged(tmp_path, "more") == ONE + THREE + TWO


def test_a_full_disk_refuses_pieces_and_decisions_and_loses_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as broker, small_disk(tmp_path / "staged", "256k"), small_disk(tmp_path / "writers", "256k"):
        piece = section("full", random.randbytes(100_000))
        at = 0
        while (reply := broker.stage("full", at, piece)).status == 200:
            at += len(piece)
        assert (reply.status, at) == (507, 2 * len(piece)), reply
        assert len(staged(tmp_path, "full")) == at
        filler = fill(tmp_path / "writers")
        reply = broker.decide("full", 1, {"full": at})
        assert (reply.status, "disk" in reply.json["error"]) == (507, True)
        assert broker.call("GET", "/v1/writers/full").status == 404
        filler.unlink()
        assert broker.decide("full", 1, {"full": at}).json["messages"] == 2
        assert broker.topic("full")["records"] == 2


def test_what_is_staged_is_listed_in_pieces_and_removed_by_a_command(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    from mq_shards.pipeline.client import Address, Client
    from mq_shards.pipeline.command import main

    for name in ("listed-a", "listed-b", "listed-c"):
        assert broker.stage(name, 0, ONE).status == 200
    assert [file["name"] for file in broker.json("/v1/staged?after=listed-a")["staged"]][:2] == ["listed-b", "listed-c"]
    address = Address("127.0.0.1", broker.port)
    with Client(address, 10) as client:
        ours = [file for file in client.staged() if file.name.startswith("listed-")]
    assert [(file.name, file.bytes, file.publishing) for file in ours] == [
        (f"listed-{letter}", len(ONE), False) for letter in "abc"
    ]
    assert all(abs(file.touched_ns - time.time_ns()) < 600e9 for file in ours)
    words = ["--brokers", str(address), "staged"]
    assert main([*words, "--drop", "listed-b"]) == 0
    assert main([*words, "--drop", "listed-b"]) == 1
    assert main([*words, "--drop-older", "1"]) == 0
    assert main(words) == 0
    said = capsys.readouterr()
    assert "listed-a" in said.out and "listed-c" in said.out and "dropped listed-b of" in said.out
    assert "listed-b is not staged" in said.err
    assert main([*words, "--drop-older", "0"]) == 0
    assert not [file for file in broker.json("/v1/staged")["staged"] if file["name"].startswith("listed-")]
