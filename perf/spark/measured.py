"""What is measured of Spark. Its messages come through NSQ."""

from __future__ import annotations

from typing import Final

from perf.nsq.wire import WIRE
from perf.spark import scenarios
from perf.subject import Subject

SPARK: Final = Subject(scenarios=scenarios.SCENARIOS, wire=WIRE, missing=scenarios.missing)
