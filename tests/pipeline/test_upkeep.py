"""What is done to the tables of streams between runs, and what a run that was killed leaves. Spark's log of a table is
written here as Spark writes it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from mq_shards.pipeline import archive, archive_manifest, compaction
from mq_shards.pipeline import run as run_job
from mq_shards.pipeline.command import main
from mq_shards.pipeline.declarative.settings import PREFIX
from mq_shards.pipeline.project import Project, ProjectError, Refresh, bare_name, emptied_with
from mq_shards.pipeline.sink_log import GRACE_S, SinkLog
from mq_shards.pipeline.upkeep import look_after

THERE = {"raw_messages", "messages", "bad_messages", "message_parts", "read_parts"}


def written(table: Path, files: int = 5, *, folder: str = ".", at_s: float = 1.0) -> SinkLog:
    """By ten micro-batches of a stream."""
    log = table / "_spark_metadata"
    log.mkdir(parents=True)
    (table / folder).mkdir(parents=True, exist_ok=True)
    lines = [b"v1"]
    for number in range(files):
        path = table / folder / f"part-{number}.parquet"
        pq.write_table(pa.table({"seq": pa.array([number], pa.int64())}), path)
        said = {
            "path": path.as_uri(), "size": path.stat().st_size, "isDir": False, "modificationTime": int(at_s * 1000),
            "blockReplication": 1, "blockSize": 1, "action": "add",
        }  # fmt: skip
        lines.append(orjson.dumps(said))
    (log / "9.compact").write_bytes(b"\n".join(lines))
    return SinkLog(table)


def a_day_passes(table: Path) -> None:
    left = orjson.loads((table / "_left.json").read_bytes())
    (table / "_left.json").write_bytes(orjson.dumps({name: since - GRACE_S for name, since in left.items()}))


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("messages", "messages"), ("default.messages", "messages"), ("spark_catalog.default.messages", "messages"),
        ("`messages`", "messages"), ("`default`.`a.b``c`", "a.b`c"), (" default . messages ", "messages"),
    ],
)  # fmt: skip
def test_a_table_is_known_however_it_is_named(table: str, name: str) -> None:
    assert bare_name(table) == name


def test_what_is_emptied_is_named_once() -> None:
    assert emptied_with(["default.messages"], THERE) == ["default.messages", "message_parts"]
    assert set(emptied_with(["`raw_messages`"], THERE)) == (THERE - {"raw_messages"}) | {"`raw_messages`"}
    given = ["default.message_parts", "`messages`", "messages"]
    assert emptied_with(given, THERE) == ["default.message_parts", "`messages`"]


def test_raw_messages_stay_while_views_count_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path / "raw_messages")
    assert [look_after(tmp_path, 60.0), look_after(tmp_path, 60.0)] == [0, 0]
    assert [record.message for record in caplog.records if "gold.py" in record.message] == [caplog.records[0].message]
    written(tmp_path / "read_parts", 1)
    assert look_after(tmp_path, 60.0) == 5


def test_what_retention_promised_to_keep_is_not_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--dir", str(tmp_path / "p"), "--topics", "t", "--bronze-retention", "1h", "--full-refresh"]
    assert main([*words, "default.messages"]) == 1
    assert "refresh raw_messages too" in capsys.readouterr().err
    kept = Project(tmp_path / "p", {PREFIX + "bronze.retention": "1h"})
    run_job._check_refresh(kept, ["messages", "`raw_messages`"])
    run_job._check_refresh(kept, ["message_parts"])

    plain = Project(tmp_path / "q", {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")})
    log = written(tmp_path / "warehouse" / "raw_messages")
    run_job._check_refresh(plain, ["messages"])
    log.replace({log.settled[0].path}, [])
    for table in ("messages", "bad_messages", "read_parts"):
        with pytest.raises(ProjectError, match="raw_messages too"):
            run_job._check_refresh(plain, [table])


def test_a_refresh_that_was_killed_is_known(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert project.unfinished_refresh() is None
    options = argparse.Namespace(full_refresh_all=False, full_refresh=["default.messages", "mistyped"])
    run_job._begin_refresh(project, options, THERE)
    assert project.unfinished_refresh() == Refresh(["default.messages"])
    project.end_refresh()
    options.full_refresh = ["mistyped"]
    run_job._begin_refresh(project, options, THERE)
    assert project.unfinished_refresh() is None
    options = argparse.Namespace(full_refresh_all=True, full_refresh=[])
    run_job._begin_refresh(project, options, THERE)
    assert project.unfinished_refresh() == Refresh([], everything=True)


def test_a_refresh_that_was_killed_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, rounds = Project(tmp_path), []
    monkeypatch.setattr(run_job, "_round", lambda _spark, _project, options, _began: rounds.append(options))
    options = argparse.Namespace(full_refresh_all=False, full_refresh=[], refresh=["own"], dry_run=False)
    for refresh in (Refresh(["messages"]), Refresh([], everything=True)):
        project.begin_refresh(refresh)
        run_job._finish_refresh(None, project, options, 0.0)  # type: ignore[arg-type]
        done = rounds.pop()
        assert (done.full_refresh_all, done.full_refresh, done.refresh) == (refresh.everything, refresh.tables, [])
        assert project.unfinished_refresh() is None
    run_job._finish_refresh(None, project, options, 0.0)  # type: ignore[arg-type]
    assert not rounds and options.refresh == ["own"]
    project.begin_refresh(Refresh(["default.messages"]))
    options.full_refresh = ["messages"]
    run_job._finish_refresh(None, project, options, 0.0)  # type: ignore[arg-type]
    assert not rounds and project.unfinished_refresh() is not None, "what is asked for does it"


def test_what_the_manifest_lists_stays(tmp_path: Path) -> None:
    """A run was killed between compaction and manifest."""
    log = written(tmp_path, folder="topic=t/date=2026-01-01")
    archive_manifest.write(tmp_path, log.files)
    assert compaction.compact(log) == 5
    a_day_passes(tmp_path)
    files = archive.look_after(tmp_path, 0)
    listed = archive_manifest.listed(tmp_path)
    assert len(listed) == 5 and all((tmp_path / name).exists() for name in listed)
    archive.describe(tmp_path, files, wait=True)
    archive.look_after(tmp_path, 0)
    assert all((tmp_path / name).exists() for name in listed), "for a day after the new list"
    a_day_passes(tmp_path)
    archive.look_after(tmp_path, 0)
    assert not any((tmp_path / name).exists() for name in listed)
    (left,) = archive_manifest.listed(tmp_path)
    assert (tmp_path / left).exists()


def test_an_older_list_is_not_written_last(tmp_path: Path) -> None:
    log = written(tmp_path, folder="topic=t/date=2026-01-01")
    with archive._DESCRIBING:
        archive.describe(tmp_path, log.files[:2], wait=False)
        archive.describe(tmp_path, log.files, wait=False)
    end = time.monotonic() + 30
    while len(archive_manifest.listed(tmp_path)) != 5 and time.monotonic() < end:
        time.sleep(0.01)
    archive._describe(tmp_path, log.files[:2], 1)
    assert len(archive_manifest.listed(tmp_path)) == 5


def test_what_a_compaction_that_was_killed_has_written_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path, folder="topic=t/date=2026-01-01")
    folder = log.files[0].path.parent
    with monkeypatch.context() as killed:
        killed.setattr(SinkLog, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            compaction.compact(log)
    (folder / ".part-00000-x-c000.snappy.parquet.new").write_bytes(b"half")
    assert len(list(folder.iterdir())) == 7
    log = SinkLog(tmp_path)
    assert log.remove_left() == 0 and len(list(folder.iterdir())) == 6, "who writes a .new has the lock"
    a_day_passes(tmp_path)
    assert log.remove_left() == 1
    assert sorted(folder.iterdir()) == sorted(file.path for file in log.files)

    compaction.compact(log)
    a_day_passes(tmp_path)
    log = SinkLog(tmp_path)
    assert log.remove_left() == 5
    assert [file.path for file in log.files] == list(folder.iterdir()), "what has come to count stays"
