"""What the measuring tools have to know of a protocol, or of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from perf.brokers import Product, Wire
from perf.load import Program
from perf.scenarios import Scenario


class Subject(NamedTuple):
    scenarios: Mapping[str, Scenario]
    wire: Wire  # what the broker under test serves
    peer: str = ""  # the program that it is compared with; "": none, and with no bare server either
    installed: Callable[[], Product | None] = lambda: None
    checked: Mapping[str, Scenario] = MappingProxyType({})  # what perf.check measures
    missing: Callable[[], str | None] = lambda: None  # what its measuring needs and is not installed; None: nothing
    bare: tuple[str, ...] = ()  # sources that the bare server is built with
    generator: Program | None = None
    drawn: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # of perf.flame: the generator's arguments, by scenario
    counted: Mapping[str, int] = MappingProxyType({})  # of perf.instructions: rounds that its start does not count in
    counting: tuple[str, ...] = ()  # sources of these
