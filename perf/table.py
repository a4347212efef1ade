"""What is measured: for each protocol, and for Spark, its scenarios, the program that it is compared with, and which of
the scenarios `python -m perf.check` measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from perf import scenarios, scenarios_nats, scenarios_nsq, scenarios_pulsar, scenarios_spark
from perf.brokers import (
    DISK,
    Product,
    Wire,
    installed_beanstalkd,
    installed_nats_server,
    installed_nsqd,
    installed_pulsar,
)
from perf.scenarios import Scenario

Subject: TypeAlias = Wire | Literal["spark"]


class Measured(NamedTuple):
    scenarios: Mapping[str, Scenario]
    wire: Wire  # the protocol that the broker under test serves
    peer: str = ""  # the program that it is compared with; "": none, and with no bare server either
    installed: Callable[[], Product | None] = lambda: None
    checked: Mapping[str, Scenario] = MappingProxyType({})  # what perf.check measures
    missing: Callable[[], str | None] = lambda: None  # what its measuring needs and is not installed; None: nothing


MEASURED: Final[Mapping[Subject, Measured]] = {
    "beanstalk": Measured(
        scenarios.SCENARIOS,
        "beanstalk",
        "beanstalkd",
        installed_beanstalkd,
        {
            each.name: replace(each, keepings=(DISK,)).measure
            for each in scenarios.TRAFFIC
            if each.name in ("pipelined", "unpipelined")
        },
    ),
    "nsq": Measured(
        scenarios_nsq.SCENARIOS,
        "nsq",
        "nsqd",
        installed_nsqd,
        {
            **{
                each.name: each.measure
                for each in scenarios_nsq.LOADS
                if each.name in ("nsq-mpub", "nsq-pub", "nsq-pub-wait", "nsq-consume", "nsq-channels")
            },
            "nsq-spread-pub": scenarios_nsq.SCENARIOS["nsq-spread-pub"],
        },
    ),
    "nats": Measured(
        scenarios_nats.SCENARIOS,
        "nats",
        "nats-server",
        installed_nats_server,
        {
            each.name: each.measure
            for each in scenarios_nats.LOADS
            if each.name in ("nats-one-128", "nats-queue", "nats-request-many")
        },
    ),
    "pulsar": Measured(scenarios_pulsar.SCENARIOS, "pulsar", "Pulsar", installed_pulsar),
    "spark": Measured(scenarios_spark.SCENARIOS, "nsq", missing=scenarios_spark.missing),
}
