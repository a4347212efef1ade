"""A directory of the declarative project: its spec, the settings of its application, and all that it keeps.

    DIR/spark-pipeline.yml          for spark-pipelines
    DIR/transformations/            ours, and whatever its owner puts beside them
    DIR/conf/                       the catalog's settings, and what Spark logs
    DIR/storage/, metastore/        checkpoints; the catalog
    DIR/warehouse/TABLE/            the tables, Parquet

The first three are written once, from the installed package, and belong to their owner from then on. A run reads them;
settings that a run is given hold for that run alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from mq_shards.pipeline import checkpoint_files
from mq_shards.pipeline.declarative.settings import PREFIX, source_options_in, with_encoded
from mq_shards.pipeline.options import OptionError, duration_s
from mq_shards.pipeline.sink_log import local_path
from mq_shards.pipeline.table_checkpoints import has_rows
from mq_shards.shards import durable

STREAMING: Final = ("raw_messages", "messages", "bad_messages", "message_parts", "read_parts")
# Tables made from the new rows of a table: emptied with it, or they would have all rows twice.
DERIVED: Final[Mapping[str, tuple[str, ...]]] = {
    "raw_messages": ("messages", "bad_messages", "message_parts", "read_parts"),
    "messages": ("message_parts",),
}
# These read raw_messages once: they cannot get again what --bronze-retention has dropped there.
OF_RAW: Final = ("messages", "bad_messages", "read_parts")
VIEWS: Final = ("topic_minutes", "top_talkers", "topic_quality")
WAIT_S: Final = 60.0
_LAST_PART: Final = re.compile(r"`((?:[^`]|``)*)`\s*$|([^.`]*)$")
# Stands for the project's directory in the packaged files.
_PACKAGED_DIR: Final = "/var/tmp/mq-shards-pipeline"
_FLOCK: Final = "hhqqi"  # struct flock: type, whence, start, length, process
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# Begins the spec of older projects, which each run wrote anew, and which used the installed transformations.
_REWRITTEN: Final = "# Written by mq-pipeline run."
# Settings under spark.sql that are the application's; all others there are the session's, and go into the spec.
_STATIC: Final = ("spark.sql.catalogImplementation", "spark.sql.warehouse.", "spark.sql.extensions", "spark.sql.hive.",
                  "spark.sql.catalog.")  # fmt: skip


class ProjectError(Exception):
    """One line: what is wrong with the directory, or with what the project is told."""


@dataclass(frozen=True)
class Refresh:
    """Tables that are emptied and begun anew."""

    tables: list[str]
    everything: bool = False


@dataclass(frozen=True)
class Project:
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """They take the place of what the project says."""

    @property
    def exists(self) -> bool:
        return self.spec_path.exists() and not self.spec_path.read_text().startswith(_REWRITTEN)

    @property
    def spec_path(self) -> Path:
        return self.directory / "spark-pipeline.yml"

    @property
    def conf_dir(self) -> Path:
        return self.directory / "conf"

    @property
    def subscription(self) -> str:
        """The name under which brokers keep what has not been read yet."""
        return f"pipeline-{hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]}"

    def spec(self) -> dict[str, Any]:
        """Raises ProjectError."""
        try:
            spec = yaml.safe_load(self._text("spark-pipeline.yml"))
            spec["configuration"] = (spec.get("configuration") or {}) | self.session_settings()
        except (yaml.YAMLError, TypeError, AttributeError) as error:
            raise ProjectError(f"{self.spec_path} is no spec: {error}") from None
        return dict(spec)

    def source_options(self) -> dict[str, str]:
        """Returns the options of the source. Raises ProjectError."""
        return source_options_in(self.spec()["configuration"])

    def bronze_retention_s(self) -> float | None:
        """Returns how long raw messages are kept; None: for ever. Raises ProjectError."""
        text = self.spec()["configuration"].get(PREFIX + "bronze.retention", "")
        try:
            return duration_s("bronze.retention", text) if text else None
        except OptionError as error:
            raise ProjectError(str(error)) from None

    def warehouse(self) -> Path | None:
        """Returns where the tables are; None if not on a file system of this machine. Raises ProjectError."""
        spec = self.spec()
        database = spec.get("database") or spec.get("schema") or "default"
        try:
            found = local_path(self.application_settings()["spark.sql.warehouse.dir"])
        except (KeyError, ValueError):
            return None
        return found if database == "default" else found / f"{database}.db"

    def storage(self) -> Path | None:
        """Returns where the checkpoints are; None if not on a file system of this machine. Raises ProjectError."""
        try:
            return local_path(str(self.spec()["storage"]))
        except (KeyError, ValueError):
            return None

    def write_run_spec(self) -> Path:
        """Writes the spec with the settings of this run, and returns its path. Raises ProjectError."""
        path = self.directory / ".run.yml"
        path.touch(mode=0o600)
        spec = self.spec()
        spec["configuration"] = with_encoded(spec["configuration"])
        path.write_text(yaml.safe_dump(spec, sort_keys=False, width=1000))
        return path

    def session_settings(self) -> dict[str, str]:
        return {key: value for key, value in self.settings.items() if _of_session(key)}

    def application_settings(self) -> dict[str, str]:
        lines = self._text("conf/spark-defaults.conf").splitlines()
        pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
        found = {key: value.strip() for key, value in pairs}
        given = {key: value for key, value in self.settings.items() if not _of_session(key)}
        if _JAVA_OPTIONS in given:
            given[_JAVA_OPTIONS] = f"{found.get(_JAVA_OPTIONS, '')} {given[_JAVA_OPTIONS]}".lstrip()
        return found | given

    def running_settings(self) -> dict[str, str]:
        """Returns these settings, those of conf/ for logging, of which Spark is not told, and how it writes its files.
        Raises ProjectError."""
        found = checkpoint_files.settings_for([self.storage(), self.warehouse()]) | self.application_settings()
        logging = self.conf_dir / "log4j2.properties"
        if logging.exists():
            options = f"-Dlog4j2.configurationFile=file:{logging} {found.get(_JAVA_OPTIONS, '')}"
            found[_JAVA_OPTIONS] = options.rstrip()
        return found

    def write(self) -> None:
        """Writes the project's files, the spec last: then the project exists. Raises ProjectError."""
        if self.exists:
            raise ProjectError(f"{self.spec_path} is there already, and yours: change it, or remove it first")
        if any(character in str(self.directory) for character in " ;?#%"):
            raise ProjectError(f"{self.directory}: Spark and Derby need a name without spaces and ;?#%")
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        begin = "# Written once, by mq-pipeline: it is yours to change.\n"
        spec = yaml.safe_dump(self.spec(), sort_keys=False, width=1000)
        settings = "".join(f"{key} {value}\n" for key, value in self.application_settings().items())
        _replace(self.conf_dir / "spark-defaults.conf", begin + settings)
        _replace(self.conf_dir / "log4j2.properties", self._packaged("conf/log4j2.properties"))
        (self.directory / "transformations").mkdir(exist_ok=True)
        for path in sorted((_declarative() / "transformations").iterdir()):
            if path.suffix in (".py", ".sql"):
                _replace(self.directory / "transformations" / path.name, path.read_text())
        _replace(self.spec_path, begin + spec)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the project's lock, which one run at a time can have. Raises ProjectError."""
        with (self.directory / ".lock").open("w") as own:
            try:
                fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProjectError(f"another run is at work in {self.directory}") from None
            self._wait_for_catalog()
            yield

    def _wait_for_catalog(self) -> None:
        """Waits until the JVM of a run that was killed, which outlives the run a little, has released the catalog. Our
        own JVM may have it open: a job that is tried again has it already."""
        give_up = time.monotonic() + WAIT_S
        lock = self.directory / "metastore" / "dbex.lck"
        while lock.exists() and (holder := _holder_of(lock)) is not None and not _is_child(holder):
            if time.monotonic() > give_up:
                raise ProjectError(f"another application has the catalog in {self.directory} open")
            time.sleep(0.2)

    def begin_refresh(self, refresh: Refresh) -> None:
        """Notes a refresh durably before checkpoints are begun anew: a run that is killed after that leaves tables that
        are not empty yet. Raises OSError."""
        said = {"all": refresh.everything, "tables": refresh.tables}
        durable.save(self._refresh_path, orjson.dumps(said))

    def end_refresh(self) -> None:
        self._refresh_path.unlink(missing_ok=True)

    def unfinished_refresh(self) -> Refresh | None:
        """Returns the refresh that a run began and did not finish. Raises ProjectError."""
        try:
            said = orjson.loads(self._refresh_path.read_bytes())
            return Refresh(list(said["tables"]), everything=bool(said["all"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ProjectError(f"{self._refresh_path} is damaged ({error}): run --full-refresh-all, or with the tables "
                               "that were to be begun anew, when you have removed it") from None  # fmt: skip

    @property
    def _refresh_path(self) -> Path:
        return self.directory / ".full-refresh"

    def remove_unborn(self) -> None:
        """Removes half a catalog, which Derby cannot open: a first run may have died before it read anything."""
        storage = self.storage()
        if storage is not None and not storage.exists() and not has_rows(self.directory / "warehouse"):
            for name in ("metastore", "warehouse"):
                shutil.rmtree(self.directory / name, ignore_errors=True)

    def remove_dropped(self, tables: set[str]) -> None:
        """Removes views that the catalog does not know any more: a run died between dropping one and making it anew."""
        for view in VIEWS:
            if view not in tables:
                shutil.rmtree(self.directory / "warehouse" / view, ignore_errors=True)

    def _text(self, name: str) -> str:
        """Reads a file of the project, or, as long as there is no project, of the installed package."""
        if not self.exists:
            return self._packaged(name)
        try:
            return (self.directory / name).read_text()
        except OSError as error:
            raise ProjectError(f"{self.directory / name}: {error.strerror}") from None

    def _packaged(self, name: str) -> str:
        return (_declarative() / name).read_text().replace(_PACKAGED_DIR, str(self.directory))


def emptied_with(tables: Sequence[str], there: Collection[str]) -> list[str]:
    """Returns these tables, and those of ours that exist and are made from them; each once, however it is named."""
    derived = [name for table in tables for name in DERIVED.get(bare_name(table), ()) if name in there]
    found: dict[str, str] = {}
    for table in (*tables, *derived):
        found.setdefault(bare_name(table), table)
    return list(found.values())


def bare_name(table: str) -> str:
    """Returns a table's name without catalog, database and backquotes."""
    found = _LAST_PART.search(table.strip())
    assert found is not None, "its end matches, if need be without a character"
    quoted, plain = found.groups()
    return str(plain).strip() if quoted is None else str(quoted).replace("``", "`")


def _declarative() -> Path:
    return Path(str(files("mq_shards.pipeline.declarative")))


def _holder_of(path: Path) -> int | None:
    """Returns the process that has a lock on the file (fcntl(2)); 0: one that is not seen from here."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with path.open("rb") as file:
            kind, *_, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    except FileNotFoundError:
        return None
    return None if kind == fcntl.F_UNLCK else int(holder)


def _is_child(process: int) -> bool:
    try:
        return f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def _of_session(key: str) -> bool:
    return key.startswith((PREFIX, "spark.sql.")) and not key.startswith(_STATIC)


def _replace(path: Path, content: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(content)
    new.replace(path)
