"""What is measured of Pulsar's binary protocol."""

from __future__ import annotations

from typing import Final

from perf.pulsar import generator, peer, scenarios
from perf.pulsar.wire import WIRE
from perf.subject import Subject

PULSAR: Final = Subject(
    scenarios=scenarios.SCENARIOS,
    wire=WIRE,
    peer="Pulsar",
    installed=peer.installed,
    bare=("pulsar/bare.c", "pulsar/frames.c"),
    generator=generator.PROGRAM,
    drawn={
        each.name: ("--mode", "publish", *each.arguments)
        for each in scenarios.LOADS
        if isinstance(each, scenarios.Publish)
    },
    counted={"pulsar-publish": 60, "pulsar-batch": 60},
    counting=("pulsar/instructions.c", *generator.FRAMES),
)
