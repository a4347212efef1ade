"""`mq-pipeline offsets` reads a query's checkpoint, and moves it only where nothing is left open. Checkpoints are
written here as Spark writes them; test_spark_stream.py has one of Spark's own."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from mq_shards.pipeline.checkpoint import check_continues
from mq_shards.pipeline.command import main
from mq_shards.pipeline.lag import behind
from mq_shards.pipeline.options import OptionError

from tests.pipeline.serving import Gateway, Kept
from tests.pipeline.stream_driver import Checkpoint as Played
from tests.pipeline.stream_driver import Driver


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode(), time_ns=len(gateway.topic(topic).messages) * 10**9)


def write(directory: Path, played: Played, *, begun: int = 0) -> None:
    """`begun`: so many micro-batches at the end are not done."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for batch, offset in enumerate(played.offsets):
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', '{"of":"another source"}', offset])
        (directory / "offsets" / str(batch)).write_text(text)
        (directory / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        if batch < len(played.offsets) - begun:
            (directory / "commits" / str(batch)).write_text("v1\n{}")


@pytest.fixture
def played(gateway: Gateway) -> Played:
    checkpoint = Played()
    fill(gateway, "a", 5)
    fill(gateway, "b", 2)
    driver = Driver(checkpoint, {"brokers": gateway.address})
    assert driver.begin()
    driver.do_begun()
    fill(gateway, "a", 3)
    return checkpoint


def offsets(gateway: Gateway, directory: Path, *more: str) -> int:
    return main(["offsets", "--brokers", gateway.address, "--checkpoint", str(directory), *more])


def test_it_says_where_a_query_is_and_how_far_behind(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, played)
    assert offsets(gateway, tmp_path, "--json") == 0
    found = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]
    assert found == [(1, "a", gateway.address, 5, 8, 3), (1, "b", gateway.address, 2, 2, 0)]
    assert offsets(gateway, tmp_path, "--topics", "a") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["source", "topic", "broker", "next", "seq", "latest", "behind"]
    assert said[2].split() == ["1", "a", gateway.address, "5", "8", "3"]
    assert len(said) == 3
    assert offsets(gateway, tmp_path, "--topic-pattern", "[ac]", "--json") == 0
    assert [row["topic"] for row in json.loads(capsys.readouterr().out)] == ["a"]
    assert offsets(gateway, tmp_path, "--topic-pattern", "c.*") == 1
    assert capsys.readouterr().err == "mq-pipeline: --topic-pattern: the query has no topic that matches c.*\n"


@pytest.mark.parametrize(
    ("to", "topics", "next_seqs"),
    [
        (("--move-to", "earliest"), (), {"a": 0, "b": 0}),
        (("--move-to", "latest"), (), {"a": 8, "b": 2}),
        (("--move-to", "1"), (), {"a": 1, "b": 1}),
        (("--move-to", "3"), ("--topics", "a"), {"a": 3, "b": 2}),
        (("--move-to", "3"), ("--topic-pattern", "[ac]"), {"a": 3, "b": 2}),
        (("--move-to-time", "4000"), ("--topics", "a"), {"a": 4, "b": 2}),
        (("--move-to", '{"a": 3, "b": "earliest"}'), (), {"a": 3, "b": 0}),
        (("--move-to", '{"a": "latest"}'), (), {"a": 8, "b": 2}),
        (("--move-to-time", '{"a": 4000, "b": 1000}'), (), {"a": 4, "b": 1}),
    ],
)
def test_a_moved_query_reads_from_there(
    gateway: Gateway,
    played: Played,
    tmp_path: Path,
    to: tuple[str, ...],
    topics: tuple[str, ...],
    next_seqs: dict[str, int],
) -> None:
    write(tmp_path, played)
    before = (tmp_path / "offsets" / "0").read_bytes()
    assert offsets(gateway, tmp_path, *to, *topics) == 0
    lines = (tmp_path / "offsets" / "0").read_text().split("\n")
    assert lines[:3] == ["v1", '{"batchWatermarkMs":0}', '{"of":"another source"}']
    assert not (tmp_path / "offsets" / ".0.crc").exists()
    (kept,) = (tmp_path / "moved").iterdir()
    assert kept.read_bytes() == before
    played.offsets[-1] = lines[3]
    rows = []
    driver = Driver(played, {"brokers": gateway.address})
    while driver.begin():
        rows += driver.do_begun()
    latest = {"a": 8, "b": 2}
    assert sorted(rows) == [(topic, seq) for topic in "ab" for seq in range(next_seqs[topic], latest[topic])]


def test_of_logs_that_were_begun_anew_all_topics_are_moved(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the query would take the other's next seq for one of the new log."""
    write(tmp_path, played)
    for topic in "ab":
        gateway.topics[topic] = Kept(0, incarnation="2")
        fill(gateway, topic, 4)
    assert offsets(gateway, tmp_path, "--move-to", "earliest", "--topics", "a") == 1
    assert "the logs of b have been begun anew, too" in capsys.readouterr().err
    assert offsets(gateway, tmp_path, "--move-to", "earliest") == 0
    played.offsets[-1] = (tmp_path / "offsets" / "0").read_text().split("\n")[3]
    driver, rows = Driver(played, {"brokers": gateway.address}), []
    while driver.begin():
        rows += driver.do_begun()
    assert sorted(rows) == [(topic, seq) for topic in "ab" for seq in range(4)]


@pytest.mark.parametrize("to", [("--move-to", '{"a": "earliest"}'), ("--move-to", "latest")])
def test_a_topic_that_its_broker_has_forgotten_is_read_from_its_first_message_when_it_comes_back(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: tuple[str, ...]
) -> None:
    write(tmp_path, played)
    kept = gateway.topics.pop("a")
    assert offsets(gateway, tmp_path, "--move-to", '{"a": 3}') == 1
    assert "its broker has forgotten it; with earliest or latest it is read" in capsys.readouterr().err
    assert offsets(gateway, tmp_path, *to) == 0
    played.offsets[-1] = (tmp_path / "offsets" / "0").read_text().split("\n")[3]
    kept.drop(0, 8)
    kept.next_seq = 90
    gateway.topics["a"] = kept
    fill(gateway, "a", 2)
    driver, rows = Driver(played, {"brokers": gateway.address}), []
    while driver.begin():
        rows += driver.do_begun()
    assert rows == [("a", 90), ("a", 91)]


def test_a_query_that_is_moved_back_over_gaps_of_compaction_finds_no_loss(
    gateway: Gateway, played: Played, tmp_path: Path
) -> None:
    gateway.topic("a").drop(1, 3)
    write(tmp_path, played)
    assert offsets(gateway, tmp_path, "--move-to", "earliest", "--topics", "a") == 0
    played.offsets[-1] = (tmp_path / "offsets" / "0").read_text().split("\n")[3]
    driver = Driver(played, {"brokers": gateway.address})
    assert driver.begin()
    assert sorted(driver.do_begun()) == [("a", seq) for seq in (0, 3, 4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--move-to", "soon"), "is no seq"),
        (("--move-to", "9"), "has messages 0 to 7, not 9"),
        (("--move-to", "latest", "--topics", "a,c"), "have no c"),
        (("--move-to", "latest", "--source", "0"), "which of the query's sources is meant: 1"),
        (("--move-to-time", "-1"), "is no number of milliseconds"),
        (("--move-to", '{"a": 1, "c": 2}'), "have no c"),
        (("--move-to", '{"a": 9}'), "has messages 0 to 7, not 9"),
        (("--move-to", '{"a": "soon"}'), "JSON by topic"),
        (("--move-to-time", '{"a": "latest"}'), "JSON by topic"),
        (("--move-to", '{"a": 1}', "--topics", "a"), "says already which topics"),
        (("--dry-run",), "--dry-run: of what?"),
    ],
)
def test_what_cannot_be_moved_is_said_and_nothing_is_changed(
    gateway: Gateway,
    played: Played,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    said: str,
) -> None:
    write(tmp_path, played)
    before = (tmp_path / "offsets" / "0").read_bytes()
    assert offsets(gateway, tmp_path, *more) == 1
    assert said in capsys.readouterr().err
    assert (tmp_path / "offsets" / "0").read_bytes() == before
    assert not (tmp_path / "moved").exists()


def test_a_broker_that_is_left_out_is_named_and_so_is_who_wants_to_move_there(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, played)
    with Gateway() as other:
        fill(other, "b", 1)
        named = f"broker {gateway.broker} (last at {gateway.address})"
        for more in ((), ("--move-to", "latest", "--dry-run")):
            assert offsets(other, tmp_path, *more) == 0
            said = capsys.readouterr()
            assert f"{named} is not among --brokers: its place is kept" in said.err
            assert said.out.splitlines()[2].split() == ["1", "a", gateway.address, "5"]
        assert offsets(other, tmp_path, "--move-to", "latest", "--topics", "a") == 1
        assert f"--brokers: a is of {named}, which is not among them" in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_named_and_what_is_known_is_shown(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_shards.pipeline.offsets_command.TIMEOUT_MS", 100)
    played = Played()
    fill(gateway, "a", 5)
    with Gateway() as other:
        fill(other, "b", 2)
        driver = Driver(played, {"brokers": f"{gateway.address},{other.address}"})
        assert driver.begin()
        driver.do_begun()
    write(tmp_path, played)
    before = (tmp_path / "offsets" / "0").read_bytes()
    fill(gateway, "a", 3)
    both = ("--brokers", f"{gateway.address},{other.address}")
    assert offsets(gateway, tmp_path, *both, "--json") == 1, "not all is known"
    said = capsys.readouterr()
    by_topic = {row.pop("topic"): row for row in json.loads(said.out)}
    assert (by_topic["a"]["next seq"], by_topic["a"]["latest"], by_topic["a"]["behind"]) == (5, 8, 3)
    assert list(by_topic["b"].values()) == [1, other.address, 2, None, None]
    assert f"broker {other.address}: " in said.err
    assert len(said.err.splitlines()) == 1, "it is not called one that was left out, too"
    for to in ("latest", '{"a": 0}'):
        assert offsets(gateway, tmp_path, *both, "--move-to", to) == 1
        assert f"broker {other.address}: " in capsys.readouterr().err
    assert (tmp_path / "offsets" / "0").read_bytes() == before


def test_a_dry_run_shows_where_a_query_would_be_and_moves_nothing(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, played)
    before = sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))
    assert offsets(gateway, tmp_path, "--move-to", '{"a": 3}', "--dry-run", "--json") == 0
    said = capsys.readouterr()
    assert [(row["topic"], row["next seq"], row["behind"]) for row in json.loads(said.out)] == [
        ("a", 3, 5),
        ("b", 2, 0),
    ]
    assert "nothing is moved" in said.err
    assert sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")) == before


def test_a_dry_run_says_what_a_move_would_be_refused_for(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = Driver(played, {"brokers": gateway.address})
    assert driver.begin()
    write(tmp_path, played, begun=1)
    assert offsets(gateway, tmp_path, "--move-to", "earliest", "--dry-run") == 1
    assert "micro-batch 1 was begun and is not done" in capsys.readouterr().err


@pytest.mark.parametrize(("lock", "checkpoint"), [("_lock", "_checkpoint"), (".lock", "storage/raw_messages/0")])
def test_a_query_of_a_job_that_is_at_work_is_not_moved(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str], lock: str, checkpoint: str
) -> None:
    directory = tmp_path / checkpoint
    write(directory, played)
    with (tmp_path / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for more in ((), ("--dry-run",)):
            assert offsets(gateway, directory, "--move-to", "earliest", *more) == 1
            assert f"a job is at work in {tmp_path}: stop it first" in capsys.readouterr().err
        assert offsets(gateway, directory) == 0, "it is shown all the same"
    assert offsets(gateway, directory, "--move-to", "earliest") == 0


def test_a_query_in_the_midst_of_a_micro_batch_is_not_moved(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = Driver(played, {"brokers": gateway.address})
    assert driver.begin()
    write(tmp_path, played, begun=1)
    assert offsets(gateway, tmp_path, "--move-to", "earliest") == 1
    assert "micro-batch 1 was begun and is not done" in capsys.readouterr().err


def test_what_is_no_checkpoint_is_named(
    gateway: Gateway, played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert offsets(gateway, tmp_path) == 1
    assert "is no checkpoint" in capsys.readouterr().err
    (tmp_path / "offsets").mkdir()
    assert offsets(gateway, tmp_path) == 1
    assert "no micro-batch that reads from mq-shards is done yet" in capsys.readouterr().err
    write(tmp_path, played)
    (tmp_path / "offsets" / "0").write_text("v7\n{}\n{}")
    assert offsets(gateway, tmp_path) == 1
    assert "it is of version 'v7'; this reads v1" in capsys.readouterr().err
    sound = b'v1\n{}\n{"brokers": '
    cut = (b"v", b"v1\n", b'v1\n{"batch', b"v1\n{}", sound)
    for damaged in (b"", bytes(64), sound + bytes(20), b"\xff\xfe" * 40, *cut):
        (tmp_path / "offsets" / "0").write_bytes(damaged)
        assert offsets(gateway, tmp_path) == 1
        assert "0 is damaged: bring back the whole checkpoint" in capsys.readouterr().err


def test_a_query_whose_sink_would_leave_out_what_it_reads_does_not_begin(played: Played, tmp_path: Path) -> None:
    checkpoint, to = tmp_path / "checkpoint", tmp_path / "to"
    check_continues(checkpoint, to)  # neither exists
    write(checkpoint, played)
    check_continues(checkpoint, to)
    (to / "_spark_metadata").mkdir(parents=True)
    for name in ("0", ".0.crc"):
        (to / "_spark_metadata" / name).write_text("v1")
    check_continues(checkpoint, to)
    for kept, begun in ((checkpoint, 0), (tmp_path / "another", -1)):
        (to / "_spark_metadata" / "9.compact").write_text("v1")
        said = rf"micro-batches up to 9, and the checkpoint \S+ knows .* up to {begun}:"
        with pytest.raises(OptionError, match=said):
            check_continues(kept, to)
    (checkpoint / "offsets" / "0").write_text("v1\n{")
    with pytest.raises(OptionError, match="0 is damaged"):
        check_continues(checkpoint, tmp_path / "elsewhere")


def test_progress_tells_how_far_a_query_is_behind() -> None:
    def offset(**seqs: int) -> str:
        return json.dumps({"version": 2, "brokers": {"b": {"at": "a:1", "logs": {}, "topics": seqs}}})

    progress = {
        "sources": [
            {"latestOffset": offset(a=10, b=3, new=4), "endOffset": offset(a=8, b=3)},
            {"latestOffset": "7", "endOffset": "5"},  # of another kind
            {"latestOffset": None, "endOffset": None},
        ]
    }
    lag = behind(progress)
    assert (lag.min, lag.max, lag.total, lag.avg) == (0, 4, 6, 2.0)
    assert {key.topic: count for key, count in lag.by_topic.items()} == {"a": 2, "b": 0, "new": 4}
    assert behind({"sources": []}).avg == 0
