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
    """Sends the events of one run. `to`: a URL, or a file."""

    to: str
    job: str
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    _inputs: list[Dataset] = field(default_factory=list)
    _outputs: list[Dataset] = field(default_factory=list)

    def begin(self, inputs: list[Dataset], outputs: list[Dataset]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._send("START", {})

    def end(self, status: int, messages: int) -> None:
        kind = "COMPLETE" if status == 0 else "ABORT" if status > 128 else "FAIL"
        count = {"_producer": PRODUCER, "_schemaURL": STATISTICS, "rowCount": messages}
        self._send(kind, {"outputFacets": {"outputStatistics": count}} if messages else {})

    def _send(self, kind: str, of_outputs: dict[str, Any]) -> None:
        """Raises OSError, ValueError."""
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
        if "://" not in self.to:
            with Path(self.to).open("ab") as file:
                file.write(body + b"\n")
            return
        # Errors of urllib may quote the URL, and with it a password or a token.
        try:
            parts = urlsplit(self.to)
            server = f"{parts.scheme}://{parts.hostname or ''}"
        except ValueError:
            raise ValueError("--lineage: this is no URL") from None
        if parts.scheme not in ("http", "https"):
            raise ValueError(f"{server}: http:// or https:// is wanted")
        if "@" in parts.netloc:
            raise ValueError(f"{server}: a URL without user and password is wanted")
        url = self.to if parts.path not in ("", "/") else self.to.rstrip("/") + PATH
        try:
            with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=REPLY_S):
                pass
        except URLError as error:
            raise OSError(f"{server}: {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise OSError(f"{server}: {type(error).__name__}") from None
