"""One message as a real broker shows it by REST: the payload is the body, and what its metadata say is in headers, of
which pulsar-admin makes a message again."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.by_time import published_ms
from mq_shards.gateway.pulsar.client_stats import iso
from mq_shards.gateway.pulsar.core import Entry
from mq_shards.gateway.pulsar.metadata import PULSAR_TAG, Value, fields_of, read, uncompressed

MAX_SHOWN_BYTES: Final = 16 << 20
_COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_BATCH_MESSAGES: Final = 11
_TRANSACTION: Final = 22
_CHUNKS: Final = {27: "PROPERTY-TOTAL-CHUNKS", 29: "PROPERTY-CHUNK-ID"}


def _number(value: Value) -> str:
    assert isinstance(value, int)
    return str(value - (1 << 64) if value >> 63 else value)  # Java has no other


def _text(value: Value) -> str:
    assert isinstance(value, bytes)
    return value.decode(errors="replace")


def _base64(value: Value) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _flag(value: Value) -> str:
    return "true" if value else "false"


def _time(value: Value) -> str:
    assert isinstance(value, int)
    return iso(value)


def _compression(value: Value) -> str:
    assert isinstance(value, int)
    return _COMPRESSIONS[value] if value < len(_COMPRESSIONS) else _number(value)


# By the numbers of fields of the metadata. What is given is shown, whatever it is.
_SHOWN: Final[dict[int, tuple[str, Callable[[Value], str]]]] = {
    5: ("replicated-from", _text),
    6: ("partition-key", _text),
    7: ("replicated-to", _text),
    8: ("compression", _compression),
    9: ("uncompressed-size", _number),
    11: ("num-batch-message", _number),
    12: ("event-time", _time),
    13: ("Base64-encryption-keys", _base64),
    14: ("encryption-algo", _text),
    15: ("Base64-encryption-param", _base64),
    16: ("Base64-schema-version", _base64),
    17: ("partition-key-b64-encoded", _flag),
    18: ("Base64-ordering-key", _base64),
    19: ("deliver-at-time", _time),
    20: ("marker-type", _number),
    22: ("txnid-least-bits", _number),
    23: ("txnid-most-bits", _number),
    24: ("highest-sequence-id", _number),
    25: ("null-value", _flag),
    26: ("uuid", _text),
    27: ("num-chunks-from-msg", _number),
    28: ("total-chunk-msg-size", _number),
    29: ("chunk-id", _number),
    30: ("null-partition-key", _flag),
}


def shown(entry: Entry, ledger: int) -> Answer:
    found = read(entry.headers) if entry.tag == PULSAR_TAG else None
    body = entry.body
    # What is not committed is not shown, nor what was aborted.
    headers = {"Message-ID": f"{ledger}:{entry.seq}", "PROPERTY": "{}", "txn-uncommitted": "false"}
    if found is None:
        headers["publish-time"] = iso(published_ms(entry))
        headers["producer-name"] = "mq-shards"
        headers["sequence-id"] = str(entry.seq)
    else:
        body = uncompressed(found, body, MAX_SHOWN_BYTES)
        headers["PROPERTY"] = json.dumps(found.properties, separators=(",", ":"))
        headers["publish-time"] = iso(found.publish_time_ms)
        headers["producer-name"] = found.producer_name
        headers["sequence-id"] = str(found.sequence_id)
        headers["Is-Encrypted"] = _flag(found.is_encrypted)
        headers |= _of_fields(entry)
    lines = {f"X-Pulsar-{header}": _one_line(value) for header, value in headers.items()}
    return Answer(200, body, {**lines, "Content-Type": "application/json"})


def _of_fields(entry: Entry) -> dict[str, str]:
    fields, metadata_bytes = fields_of(entry.headers)
    headers = {}
    for number, (header, form) in _SHOWN.items():
        if number in fields and isinstance(fields[number], bytes) == (form in (_text, _base64)):
            headers[header] = form(fields[number])
            if number in _CHUNKS:
                headers[_CHUNKS[number]] = headers[header]
    if _BATCH_MESSAGES in fields:
        headers["batch-size"] = str(len(entry.headers) + len(entry.body) - metadata_bytes)
    if _TRANSACTION in fields:
        headers["txn-aborted"] = "false"
    return headers


def _one_line(value: str) -> str:
    """Replaces what a header cannot hold: control characters, and characters beyond Latin-1."""
    return "".join(c if " " <= c != "\x7f" else "?" for c in value).encode("latin-1", "replace").decode("latin-1")
