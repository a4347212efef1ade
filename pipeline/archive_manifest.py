"""The list of an archive's files, for readers without Spark: `_manifest.json`, always replaced as a whole.

    {"version": 1, "made": "2026-01-31T12:00:00+00:00",
     "files": [{"path", "topic", "date", "bytes", "sha256", "messages", "seqs": {BROKER: [first, last]}}],
     "topics": {TOPIC: {"messages", "bytes", "seqs": {BROKER: [first, last]}}}}

`path` is relative to the archive, as on disk. A listed file stays for a day after a newer list has replaced this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import orjson
import pyarrow.parquet as pq
from mq_shards.pipeline.sink_log import SinkFile
from mq_shards.shards import durable

NAME: Final = "_manifest.json"
_VERSION: Final = 1

File = dict[str, Any]
Seqs = dict[str, list[int]]


def write(archive: Path, files: Iterable[SinkFile]) -> Mapping[str, Any]:
    """Writes the manifest of these files; those in the last manifest are not read again. Raises OSError."""
    before = {(file["path"], file["bytes"]): file for file in _last(archive)}
    found: list[File] = []
    for file in sorted(files, key=lambda file: file.name):
        found.append(before.get((file.name, file.size)) or _described(file))
    manifest = {
        "version": _VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": found,
        "topics": _topics(found),
    }
    durable.save(archive / NAME, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
    return manifest


def listed(archive: Path) -> set[str]:
    """Returns the names of the files in the current manifest. Raises OSError."""
    return {file["path"] for file in _last(archive)}


def _last(archive: Path) -> list[File]:
    try:
        found = orjson.loads((archive / NAME).read_bytes())
        files: list[File] = found["files"] if found["version"] == _VERSION else []
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # missing, or not a manifest: made anew
        return []
    return files


def _described(file: SinkFile) -> File:
    folders = dict(part.split("=", 1) for part in Path(file.name).parts[:-1] if "=" in part)
    with file.path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    with pq.ParquetFile(file.path) as parquet:
        names = [name for name in ("broker", "seq") if name in parquet.schema_arrow.names]
        rows = parquet.read(columns=names)
    # Archives from before the column `broker` hold messages of one broker, unnamed.
    seqs = rows.group_by(names[:-1]).aggregate([("seq", "min"), ("seq", "max")]).to_pylist()
    return {
        "path": file.name,
        "topic": unquote(folders.get("topic", "")),
        "date": unquote(folders.get("date", "")),
        "bytes": file.size,
        "sha256": digest,
        "messages": rows.num_rows,
        "seqs": {row.get("broker") or "": [row["seq_min"], row["seq_max"]] for row in seqs},
    }


def _topics(files: Iterable[File]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in files:
        topic = found.setdefault(file["topic"], {"messages": 0, "bytes": 0, "seqs": {}})
        topic["messages"] += file["messages"]
        topic["bytes"] += file["bytes"]
        seqs: Seqs = topic["seqs"]
        for broker, (first, last) in file["seqs"].items():
            known = seqs.setdefault(broker, [first, last])
            seqs[broker] = [min(known[0], first), max(known[1], last)]
    return dict(sorted(found.items()))
