"""Sends events of OpenLineage (openlineage.io/spec, 2-0-2): a run begins, and ends well, is stopped, or fails."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import orjson

PRODUCER: Final = "urn:mq-shards:mq-pipeline"
SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
STATISTICS: Final = "https://openlineage.io/spec/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json"
NAMESPACE: Final = "mq-shards"
PATH: Final = "/api/v1/lineage"  # for a server whose URL has no path
REPLY_S: Final = 5.0


@dataclass(frozen=True)
class Dataset:
    namespace: str
    name: str


@dataclass
class Lineage:
    """Sends the events of one run. `to`: a URL, or a file. Raises ValueError if the URL is none, OSError if the file
    cannot be written."""

    to: str
    job: str
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    _inputs: list[Dataset] = field(default_factory=list)
    _outputs: list[Dataset] = field(default_factory=list)

    def __post_init__(self) -> None:
        if "://" in self.to:
            self._url, self._server = _checked(self.to)
        else:
            self._url = ""
            Path(self.to).open("ab").close()

    def begin(self, inputs: list[Dataset], outputs: list[Dataset]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._send("START", {})

    def end(self, status: int, messages: int) -> None:
        kind = "COMPLETE" if status == 0 else "ABORT" if status > 128 else "FAIL"
        count = {"_producer": PRODUCER, "_schemaURL": STATISTICS, "rowCount": messages}
        self._send(kind, {"outputFacets": {"outputStatistics": count}} if messages else {})

    def _send(self, kind: str, of_outputs: dict[str, Any]) -> None:
        """Raises OSError."""
        event = {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "run": {"runId": self.run},
            "job": {"namespace": NAMESPACE, "name": self.job.replace(" ", ".")},
            "inputs": [{"namespace": one.namespace, "name": one.name} for one in self._inputs],
            "outputs": [{"namespace": one.namespace, "name": one.name, **of_outputs} for one in self._outputs],
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
        }
        body = orjson.dumps(event)
        if not self._url:
            with Path(self.to).open("ab") as file:
                file.write(body + b"\n")
            return
        try:
            with urlopen(Request(self._url, body, {"Content-Type": "application/json"}), timeout=REPLY_S):
                pass
        except URLError as error:
            raise OSError(f"{self._server}: {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise OSError(f"{self._server}: {type(error).__name__}") from None


def _checked(url: str) -> tuple[str, str]:
    """Returns where to send events, and how errors name the server: those of urllib may quote the URL, and with it a
    password or a token. Raises ValueError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("this is no URL") from None
    server = f"{parts.scheme}://{host or ''}"
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{server}: http:// or https:// is wanted")
    if "@" in parts.netloc:
        raise ValueError(f"{server}: a URL without user and password is wanted")
    if not host or port == 0 or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{server}: this is no URL")
    return url if parts.path not in ("", "/") else url.rstrip("/") + PATH, server
