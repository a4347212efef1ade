"""The REST API is asked with the bodies of its scenes, in which something is odd: whatever it is, that is refused or
obeyed, and no fault of ours."""

from __future__ import annotations

import copy
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pulsar.admin_scenes import SCENES
from tests.pulsar.servers import PulsarServer, running

# json.dumps writes some of these as no standard of JSON allows.
VALUES: Final = (
    None, True, 0, -1, 1.5, (1 << 31) - 1, 1 << 63, 1 << 64, 10**400, float("nan"), float("inf"), "", "0", "-1", "true",
    "\0", "\ud800", "é", "x" * 5000, "persistent://public/default/a", "a/b/c", "%ff", "(a+)+$", [], [None], [1], ["a"],
    [[]], {}, {"": 1}, {"a": {"b": {}}}, [{}],
)  # fmt: skip
FAULT: Final = 500


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*above, key))


def odd(body: Any, draw: random.Random) -> bytes:  # noqa: ANN401
    """The body with another value somewhere, or spoilt as a text."""
    place, value = draw.choice(list(places(body))), draw.choice(VALUES)
    changed = copy.deepcopy(body)
    if place:
        at = changed
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value
    else:
        changed = {**body, draw.choice(("", "zz", *body)): value} if isinstance(body, dict) else value
    text, whole = json.dumps(changed).encode(), json.dumps(body).encode()
    cut = draw.randrange(len(whole))
    spoilt = (
        whole[:cut], whole[:cut] + bytes([draw.randrange(256)]) + whole[cut:], b"[" * 60_000 + whole,
        whole[:-1] + b"," + whole[1:], b'{"a":' * 60_000, b"9" * 5000,
    )  # fmt: skip
    return text if draw.random() < 0.75 else draw.choice(spoilt)


def played(server: PulsarServer, draw: random.Random, most: int, each: int) -> list[str]:
    """Some scenes, with so many odd requests behind each that has a body. What was our fault."""
    faults, asked = [], 0
    connection = http.client.HTTPConnection(server.http, timeout=60)

    def ask(method: str, path: str, body: bytes | None) -> None:
        nonlocal asked
        asked += 1
        path = path if path.startswith("/") else f"/admin/v2/{path}"
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read()
        # A real broker says that a schema is not compatible by this status, too.
        if response.status == FAULT and b"unexpected error" in said:
            faults.append(f"{method} {path} {(body or b'')[:200]!r}")

    for name in draw.sample(sorted(SCENES), len(SCENES)):
        for method, path, *rest in SCENES[name]:
            if asked >= most or not path.isascii() or " " in path:
                continue
            ask(method, path, json.dumps(rest[0]).encode() if rest else None)
            for _ in range(each if rest else 0):
                ask(method, path, odd(rest[0], draw))
    connection.close()
    return faults


def test_odd_bodies_are_no_fault_of_ours() -> None:
    with running() as server:
        assert not played(server, random.Random(1), 400, 4)


def test_a_schema_has_the_name_of_a_type(server: PulsarServer, topic: str) -> None:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    for what in ("schema", "compatibility", "version"):
        for kind in ({}, [], ["a"], None, 1, "x"):
            body = json.dumps({"type": kind, "schema": "", "properties": {}})
            connection.request("POST", f"/admin/v2/schemas/public/default/{topic}/{what}", body)
            response = connection.getresponse()
            response.read()
            assert response.status in (400, 422), (what, kind)
    connection.close()


def test_what_a_schema_says_is_not_written_to_the_journal(server: PulsarServer, topic: str) -> None:
    """Avro's library warns of a logical type that it does not know, or that is not of its type."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    for number, (kind, odd_one) in enumerate((("int", "x\nerror"), ("string", "date"), ("bytes", "decimal"))):
        logical = {"type": kind, "logicalType": odd_one, "precision": "x"}
        schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": logical}]}
        body = json.dumps({"type": "AVRO", "schema": json.dumps(schema), "properties": {}})
        connection.request("POST", f"/admin/v2/schemas/public/default/{topic}{number}/schema", body)
        response = connection.getresponse()
        assert (response.status, response.read()[:11]) == (200, b'{"version":')
    connection.close()
    assert "IgnoredLogicalType" not in server.stderr.read_text()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_odd_bodies_are_no_fault_of_ours() -> None:
    for seed in range(2, 8):
        with running() as server:
            assert not played(server, random.Random(seed), 10_000, 8)
