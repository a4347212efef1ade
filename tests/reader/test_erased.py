"""A topic that is erased is gone for everybody who reads the log, over a restart too; what comes later is read."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path

import crc32c
import pytest
from mq_shards.shards import durable
from mq_shards.shards import erased as erasures
from mq_shards.shards.erased import Mark
from mq_shards.shards.paths import segment_name, shard_path
from mq_shards.shards.reader.view import DataView
from mq_shards.shards.segment_header import decode_header

from tests.nsq.api import post
from tests.reader.broker import Broker, started
from tests.servers import wait_until


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [sent.body for sent in broker.read_all(topic)]


def erased(broker: Broker) -> dict[str, dict[str, object]]:
    found = broker.json("/v1/erased")["erased"]
    assert isinstance(found, list)
    return {one["topic"]: one for one in found}


def test_an_erased_topic_is_gone_from_history_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data) as broker:
        broker.publish(*((topic, b"%d" % n) for n in range(50) for topic in ("secret", "kept")))
        token = broker.json("/v1/topics")["changes"]
        post(broker.server, "/topic/delete?topic=secret")
        assert len(bodies(broker, "secret")) == 50, "it is deleted, and still in the log"
        before_ns = time.time_ns()
        assert broker.json("/v1/topics/secret", "DELETE") == {"topic": "secret", "erased": 50, "until": 50}
        assert broker.topic("secret") == {}
        listing = broker.json(f"/v1/topics?since={token}")
        assert listing["gone"] == ["secret"]
        for call in ("/v1/records?topic=secret&from=0", "/v1/offsets?topic=secret&timestamp_ns=0"):
            broker.json(call, status=404)
        asked = b'{"ranges": [["secret", 0, 50], ["kept", 0, 50]], "max_bytes": 1000000}'
        many = broker.call("POST", "/v1/records", asked)
        assert many.body.startswith(b"[null,")
        assert bodies(broker, "kept") == [b"%d" % n for n in range(50)]
        (said,) = erased(broker).values()
        assert (said["topic"], said["until"], said["by"]) == ("secret", 50, "")
        assert isinstance(said["erased_ns"], int) and before_ns <= said["erased_ns"] <= time.time_ns()
        broker.json("/v1/topics/secret", "DELETE", status=404)
        broker.json("/v1/topics/never", "DELETE", status=404)
        broker.publish(("secret", b"new"))
        first = broker.topic("secret")
        assert (first["earliest"], first["complete"], first["records"]) == (first["latest"] - 1,) * 2 + (1,)
        assert bodies(broker, "secret") == [b"new"]
        sent, seqs = broker.records("secret", 0)
        assert [one.body for one in sent] == [b"new"] and seqs["earliest"] >= 50
        assert broker.json("/v1/offsets?topic=secret&timestamp_ns=0")["seq"] == seqs["earliest"]
        assert "topic 'secret' is erased: 50 messages" in broker.server.said()
        broker.server.kill()
    with started(data) as broker:
        assert bodies(broker, "secret") == [b"new"] and set(erased(broker)) == {"secret"}
        assert len(bodies(broker, "kept")) == 50


def test_a_live_topic_is_deleted_with_its_history(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        assert broker.publish(*[("live", b"x")] * 3).status == 200
        assert broker.json("/v1/topics/live", "DELETE")["erased"] == 3
        assert broker.topic("live") == {}
        broker.json("/v1/topics/live", "DELETE", status=404)


def test_who_cannot_know_what_was_erased_shows_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data) as broker:
        broker.publish(("a", b"x"))
        broker.json("/v1/topics/a", "DELETE")
        broker.server.kill()
    (data / "erased.json").write_bytes(b"{")
    with started(data) as broker:
        assert "erased.json cannot be read" in str(broker.json("/v1/topics", status=503)["error"])


def test_what_was_erased_in_another_shard_stays_erased(tmp_path: Path) -> None:
    data = tmp_path / "data"
    one, other = (next(f"t{n}" for n in range(100) if crc32c.crc32c(b"t%d" % n) % 2 == shard) for shard in range(2))
    with started(data, "--shards", "2") as broker:
        broker.publish(*((topic, b"x") for topic in (one, other) for _ in range(3)))
        broker.json(f"/v1/topics/{one}", "DELETE")
        broker.server.kill()
    with started(data) as broker:
        assert broker.json(f"/v1/topics/{other}", "DELETE")["erased"] == 3
        assert set(erased(broker)) == {one, other}
        assert broker.topic(one) == broker.topic(other) == {}
        broker.server.kill()
    with started(data) as broker:
        assert broker.topic(one) == broker.topic(other) == {}


def test_what_an_erasing_counts_is_on_disk_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seq that a power failure takes back is given to another message, which would not be shown."""
    data = tmp_path / "data"
    with started(data, "--shards", "2") as broker:
        broker.publish(("t", b"x"))
        broker.server.kill()
    shard = data / f"shard-{crc32c.crc32c(b't') % 2:04d}"
    synced: set[int] = set()
    save, fsync = erasures.save, os.fsync

    def note(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fsync(fd)

    def checked(directory: Path, erased: dict[str, erasures.Erasure]) -> None:
        assert {path.stat().st_ino for path in shard.glob("*.log")} <= synced
        save(directory, erased)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(erasures, "save", checked)
    assert DataView(data, 2).erase("t", "", soon=True) is not None
    assert set(erasures.load(data)) == {"t"}


SECRET = next(f"secret{n}" for n in range(100) if crc32c.crc32c(b"secret%d" % n) % 2 == crc32c.crc32c(b"kept") % 2)


def on_disk(data: Path, body: bytes) -> bool:
    for path in data.glob("shard-*/*.log"):
        with contextlib.suppress(FileNotFoundError):  # retention has just taken it
            if body in path.read_bytes():
                return True
    return False


def test_the_bytes_of_an_erased_topic_leave_the_disk_with_retention(tmp_path: Path) -> None:
    """Also out of a segment that is written to and would not be full for years, and from among messages that are to
    stay: most of it, so that emptying it would not be worth it otherwise."""
    data = tmp_path / "data"
    none = ("--shards", "2", "--set", "log.retention-hours=0", "--set", "log.retention-bytes=0")
    kept = [b"kept-%d" % n for n in range(200)]
    with started(data, *none) as broker:
        broker.publish(*(("kept", body) for body in kept), *((SECRET, b"very-secret-%d" % n) for n in range(5)))
        assert on_disk(data, b"very-secret-")
        assert broker.json(f"/v1/topics/{SECRET}", "DELETE")["erased"] == 5
        wait_until(lambda: not on_disk(data, b"very-secret-"), "no file has its bytes")
        wait_until(lambda: erased(broker) == {}, "it is not listed any more")
        assert bodies(broker, "kept") == kept
        broker.server.kill()
    with started(data, *none) as broker:
        assert bodies(broker, "kept") == kept


def test_what_was_erased_goes_after_a_restart_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--shards", "2") as broker:
        broker.publish(("kept", b"kept"), (SECRET, b"very-secret"))
        broker.json(f"/v1/topics/{SECRET}", "DELETE")
        broker.server.kill()
    assert on_disk(data, b"very-secret"), "for retention-hours others may read what lies beside it"
    none = ("--set", "log.retention-hours=0", "--set", "log.retention-bytes=0")
    with started(data, *none) as broker:
        wait_until(lambda: not on_disk(data, b"very-secret"), "no file has its bytes")
        assert bodies(broker, "kept") == [b"kept"]


def test_a_worker_lets_what_is_marked_go_sooner_and_nothing_else(tmp_path: Path) -> None:
    """Of four shards: one where something is erased, one where nothing is, one with the mark of a log that is lost, and
    one with a mark of an earlier release, which may be of such a log."""
    data = tmp_path / "data"
    topics = [next(f"t{n}" for n in range(100) if crc32c.crc32c(b"t%d" % n) % 4 == shard) for shard in range(4)]
    secret = next(f"s{n}" for n in range(100) if crc32c.crc32c(b"s%d" % n) % 4 == 0)
    with started(data, "--shards", "4") as broker:
        broker.publish((secret, b"very-secret"), *((topic, b"history-%d" % n) for n, topic in enumerate(topics)))
        for topic in topics:
            post(broker.server, f"/topic/delete?topic={topic}")  # finished, and kept to be read
        broker.server.kill()
    marks = {"version": 1, "shards": {"2": 5000, "3": 5000}, "logs": {"2": 1}, "soon": {"2": 5000, "3": 5000}}
    (data / erasures.SEGMENTS).write_text(json.dumps(marks))
    with started(data, "--set", "log.erased-hours=0", "--set", "log.retention-hours=1000") as broker:
        following = shard_path(data, 3) / segment_name(2)
        wait_until(following.exists, "what its mark may be about is sealed, to be emptied when it is past retention")
        broker.json(f"/v1/topics/{secret}", "DELETE")
        wait_until(lambda: not on_disk(data, b"very-secret"), "no file has its bytes")
        there = [n for n in range(4) if on_disk(data, b"history-%d" % n)]
        assert there == [1, 2, 3]
        assert [bodies(broker, topics[n]) for n in there] == [[b"history-%d" % n] for n in there]


def mark(data: Path, shard: int, *said: int) -> None:
    with erasures.marked(data, shard, Mark(*said)):
        pass


def test_a_mark_keeps_what_may_go_soon_by_an_earlier_one_of_its_log(tmp_path: Path) -> None:
    marks = []
    for said in ((3, 100), (5, 100, 5), (7, 100), (9, 100, 9), (2, 200), (3, 200, 3)):
        mark(tmp_path, 1, *said)
        marks.append(erasures.load_segments(tmp_path)[1])
    soon = [one.soon for one in marks]
    assert soon == [0, 5, 5, 9, 0, 3]


def test_an_erasing_that_is_refused_marks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what others may read would go without anything being erased."""
    data = tmp_path / "data"
    one, other = (next(f"t{n}" for n in range(100) if crc32c.crc32c(b"t%d" % n) % 2 == shard) for shard in range(2))
    with started(data, "--shards", "2") as broker:
        broker.publish((one, b"x"), (other, b"x"))
        broker.server.kill()
    view = DataView(data, 2)
    assert view.erase(one, "", soon=True) is not None
    marks = erasures.load_segments(data)
    assert set(marks) == {0}

    def never(path: Path, content: bytes) -> None:
        raise AssertionError("not even for a moment")

    with monkeypatch.context() as patched:
        patched.setattr(erasures, "MAX_TOPICS", 1)
        patched.setattr(durable, "save", never)
        with pytest.raises(erasures.ErasedError):
            view.erase(other, "", soon=True)

    def full(directory: Path, erased: dict[str, erasures.Erasure]) -> None:
        assert set(erasures.load_segments(directory)) == {0, 1}, "marked before it is promised"
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(erasures, "save", full)
        with pytest.raises(OSError, match="no room"):
            view.erase(other, "", soon=True)
    assert erasures.load_segments(data) == marks and set(erasures.load(data)) == {one}
    assert view.topic(other) is not None


def test_a_list_of_segments_that_is_damaged_is_said_and_begun_anew(tmp_path: Path) -> None:
    mark(tmp_path, 3, 7, 100)
    mark(tmp_path, 4, 1, 200)
    looking = erasures.ErasedSegments(tmp_path)
    looking.refresh()
    there = {3: Mark(7, 100), 4: Mark(1, 200)}
    assert (looking.marks, looking.error) == (there, "")
    wrong = b'"shards": {"a": 1}', b'"shards": {}, "logs": 1'
    for damaged in (b"{", b"[]", b'{"version": 9}', *(b'{"version": 1, %b}' % one for one in wrong)):
        (tmp_path / "new").write_bytes(damaged)
        (tmp_path / "new").replace(tmp_path / erasures.SEGMENTS)
        looking.refresh()
        assert looking.error and looking.marks == there
    mark(tmp_path, 5, 2, 300)
    looking.refresh()
    assert (looking.marks, looking.error) == ({5: Mark(2, 300)}, "")


@pytest.mark.parametrize(
    ("log", "began_ns", "expected"),
    [
        (b', "logs": {"3": 100}', 100, Mark(5000, 100, 40)),
        (b', "logs": {"3": 100}', 101, Mark()),  # the log it was made for is lost
        (b"", 100, Mark(5000)),  # of an earlier release: no reason to let history go sooner
        (b', "logs": {"4": 100}', 100, Mark(5000)),
        (b', "logs": {"3": 0}', 0, Mark(5000)),  # both may have been begun at any time
        (b', "logs": {"3": 100}', 0, Mark(5000, 100)),
    ],
)
def test_a_mark_counts_only_for_the_log_it_was_made_for(
    tmp_path: Path, log: bytes, began_ns: int, expected: Mark
) -> None:
    (tmp_path / erasures.SEGMENTS).write_bytes(b'{"version": 1, "shards": {"3": 5000}, "soon": {"3": 40}%b}' % log)
    looking = erasures.ErasedSegments(tmp_path)
    looking.refresh()
    assert looking.mark_of(3, began_ns) == expected
    assert looking.mark_of(4, began_ns) == Mark()


def test_an_erasing_marks_the_segments_of_its_log_for_every_release(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--shards", "2") as broker:
        broker.publish(("t", b"x"))
        broker.json("/v1/topics/t", "DELETE")
        broker.server.kill()
    shard = crc32c.crc32c(b"t") % 2
    began_ns = decode_header((shard_path(data, shard) / segment_name(1)).read_bytes()).log_began_ns
    said = json.loads((data / erasures.SEGMENTS).read_bytes())
    assert began_ns
    assert (said["shards"], said["logs"], said["soon"]) == ({str(shard): 1}, {str(shard): began_ns}, {str(shard): 1})
