"""What is measured of NSQ's protocol and HTTP API."""

from __future__ import annotations

from typing import Final

from perf.nsq import generator, peer, scenarios
from perf.nsq.wire import WIRE
from perf.subject import Subject

CHECKED: Final = ("nsq-mpub", "nsq-pub", "nsq-pub-wait", "nsq-consume", "nsq-channels", "nsq-spread-pub")

NSQ: Final = Subject(
    scenarios=scenarios.SCENARIOS,
    wire=WIRE,
    peer="nsqd",
    installed=peer.installed,
    checked={name: scenarios.SCENARIOS[name] for name in CHECKED},
    bare=("nsq/bare.c",),
    generator=generator.PROGRAM,
    drawn={each.name: each.arguments for each in scenarios.LOADS if isinstance(each, scenarios.Traffic)},
    counted={"nsq-pub": 60, "nsq-mpub": 5, "nsq-mpub-consumed": 5},
    counting=("nsq/instructions.c",),
)
