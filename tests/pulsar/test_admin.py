"""The REST API beside what a real 4.0.7 answered to the same requests: statuses, reasons, and keys of every object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pulsar.record_admin import TRANSCRIPTS, play
from tests.pulsar.servers import PulsarServer, running

RECORDED: Final[dict[str, list[dict[str, Any]]]] = json.loads(TRANSCRIPTS.read_text())

# Where we do otherwise, and why.
DIFFERS: Final = {
    "GET /admin/v3/transactions/transactionMetadata/0/1": "the recorded one has no coordinator: 503",
    "GET brokers/internal-configuration": "a real broker's options: there is no such thing here",
    "GET /status.html": "a standalone has no file for it; a broker behind a balancer says ok",
    "GET persistent/public/default/ended/backlogSize": "is not there: 404",
    "DELETE persistent/public/default/ended": "a real broker's compaction is a client, here there is none",
    "PUT persistent/public/default/unnamed/partitions": "400, where a real broker fails with 500",
    "POST /admin/non-persistent/public/standalone/volatile/t/subscription/s/skip_all": "405, where one fails with 500",
    "DELETE /admin/namespaces/public/standalone/late": "a real broker's bundles are those of before it was made",
    "DELETE /admin/namespaces/public/standalone/granted": "a real broker's bundles are those of before it was made",
    "GET /lookup/v2/destination/lasting/nobody/nowhere/looked/t": "404, where a real broker fails with 500",
    "GET /lookup/v2/destination/persistent/nobody/nowhere/loo%20ked/t": "412, where a real broker fails with 500",
    "POST schemas/public/default/withschema/schema NOSUCHTYPE": "422 and a reason, where a real broker has a stack",
}
# Of Java's key stores; of a subscription nobody has been connected to.
MISSING: Final = {".brokerClientSslFactoryPlugin", ".brokerClientTlsKeyStoreType", ".brokerClientTlsTrustStoreType"}
# Lists of what is elsewhere, or numbers of moments, or of a real broker's dynamic options: here there are none.
ANY: Final = {
    *(f"GET {root}brokers{of}" for root in ("", "/admin/") for of in ("", "/standalone", "/nowhere", "/configuration")),
    "GET clusters/standalone/namespaceIsolationPolicies/brokers",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    """One of their own: what other tests make would be in its lists."""
    with running(workers=2) as server:
        yield server


def said(step: list[Any]) -> str:
    text = f"{step[0]} {step[1]}"
    kind = step[2].get("type") if len(step) > 2 and isinstance(step[2], dict) else None
    return f"{text} {kind}" if kind == "NOSUCHTYPE" else text


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[str]:  # noqa: ANN401
    """Of keys and kinds; values are of other brokers and moments."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        yield from (f"{where}.{key} is missing" for key in theirs.keys() - ours.keys() if f".{key}" not in MISSING)
        yield from (f"{where}.{key} is too much" for key in ours.keys() - theirs.keys())
        for key in theirs.keys() & ours.keys():
            yield from differences(theirs[key], ours[key], f"{where}.{key}")
    elif where.endswith(".boundaries"):
        yield from [] if theirs == ours else [f"{where} is {ours!r} and not {theirs!r}"]
    elif isinstance(theirs, bool) != isinstance(ours, bool) or isinstance(theirs, str) != isinstance(ours, str):
        yield f"{where} is {ours!r} and not {theirs!r}"


@pytest.mark.parametrize("scene", RECORDED)
def test_requests_are_answered_as_by_a_real_broker(server: PulsarServer, scene: str) -> None:
    wrong = []
    for step in RECORDED[scene]:
        what = said(step["step"])
        ours = play(server.http, tuple(step["step"]))  # type: ignore[arg-type]
        if what in DIFFERS:
            assert (ours["status"] in (404, 405, 501)) or ours["status"] != step["status"], f"{what}: as a real one now"
            continue
        found = [] if ours["status"] == step["status"] else [f"{ours} and not {step['status']}"]
        if "json" in step:
            theirs = step["json"]
            if isinstance(theirs, dict) and "reason" in theirs:
                # Its stacks, and what Avro says in Java, are its own.
                if not theirs["reason"].startswith("\n") and ours.get("json") != theirs:
                    found.append(f"{ours} and not {theirs}")
            elif isinstance(theirs, dict):
                found += differences(theirs, ours.get("json"))
            elif what not in ANY and ours.get("json") != theirs:
                found.append(f"{ours} and not {theirs}")
        wrong += [f"{what}: {one}" for one in found]
    assert not wrong, "\n".join(wrong)
