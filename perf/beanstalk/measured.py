"""What is measured of beanstalkd's protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from perf.beanstalk import generator, peer, scenarios
from perf.beanstalk.wire import WIRE
from perf.brokers import DISK
from perf.subject import Subject

BEANSTALK: Final = Subject(
    scenarios=scenarios.SCENARIOS,
    wire=WIRE,
    peer="beanstalkd",
    installed=peer.installed,
    checked={
        each.name: replace(each, keepings=(DISK,)).measure
        for each in scenarios.TRAFFIC
        if each.name in ("pipelined", "unpipelined")
    },
    bare=("beanstalk/bare.c",),
    generator=generator.PROGRAM,
    drawn={each.name: each.arguments for each in scenarios.TRAFFIC},
    counted={"pipelined": 10, "unpipelined": 300, "bodies-16k": 5, "bodies-64k": 5},
    counting=("beanstalk/instructions.c",),
)
