"""What is measured of NATS's protocol."""

from __future__ import annotations

from typing import Final

from perf.nats import generator, peer, scenarios
from perf.nats.wire import WIRE
from perf.subject import Subject

NATS: Final = Subject(
    scenarios=scenarios.SCENARIOS,
    wire=WIRE,
    peer="nats-server",
    installed=peer.installed,
    checked={name: scenarios.SCENARIOS[name] for name in ("nats-one-128", "nats-queue", "nats-request-many")},
    bare=("nats/bare.c",),
    generator=generator.PROGRAM,
    drawn={each.name: each.arguments for each in scenarios.LOADS if isinstance(each, scenarios.Traffic)},
    counted={"nats-unwanted": 50, "nats-one": 50, "nats-fan-out": 10, "nats-queue": 50, "nats-subjects": 50},
    counting=("nats/instructions.c",),
)
