"""What is refused on the wire, beside what a real 4.0.7 said to the same commands: answers, errors and their texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from perf.pulsar.standalone import missing
from tests.pulsar.record_wire import TRANSCRIPTS, played, real_broker
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire_scenes import SCENES

RECORDED: Final[dict[str, list[dict[str, Any]]]] = json.loads(TRANSCRIPTS.read_text())

# What Java's libraries say, and what of a real broker's objects is shown, is not said here: where it begins.
AS_FAR_AS: Final = (
    "Error during schema compatibility check with strategy", "Invalid schema definition data for AVRO schema",
    "Invalid schema definition data for PROTOBUF schema", "Range conflict with consumer",
    "java.util.regex.PatternSyntaxException", "Invalid topics pattern: ",
)  # fmt: skip


@pytest.fixture(scope="module")
def fresh() -> Iterator[PulsarServer]:
    """The recorded scenes are of a broker that had nothing."""
    with running(acceptors=2) as server:
        yield server


def alike(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    if theirs == ours:
        return True
    for name in ("message", "error_message"):
        said = theirs.get(name, "")
        cut = next((said.find(text) + len(text) for text in AS_FAR_AS if text in said), 0)
        if cut and name in ours:
            # RE2 has other words for what is wrong with a pattern.
            begins = "" if said.startswith("java.util.regex") else said[:cut]
            return {**theirs, name: ""} == {**ours, name: ""} and str(ours[name]).startswith(begins)
    return False


@pytest.mark.parametrize("scene", SCENES)
def test_commands_are_refused_as_by_a_real_broker(fresh: PulsarServer, scene: str) -> None:
    steps, wrong = SCENES[scene], []
    assert [list(step) for step in steps] == [one["step"] for one in RECORDED[scene]], "record anew: record_wire"
    for step, found, ours in zip(steps, RECORDED[scene], played(fresh.http, fresh.port, steps), strict=True):
        theirs = {key: value for key, value in found.items() if key != "step"}
        if not alike(theirs, ours):
            wrong.append(f"{step}: {ours} and not {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(missing("broker") is not None, reason=str(missing("broker")))
def test_what_is_recorded_is_what_a_real_broker_says() -> None:
    with real_broker() as (address, port):
        for scene, steps in SCENES.items():
            theirs = [{key: value for key, value in one.items() if key != "step"} for one in RECORDED[scene]]
            assert played(address, port, steps) == theirs, scene
