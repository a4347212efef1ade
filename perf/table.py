"""What is measured: each protocol, and Spark, in a folder of its name. protocols.h lists the protocols for C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perf.beanstalk.measured import BEANSTALK
from perf.nats.measured import NATS
from perf.nsq.measured import NSQ
from perf.pulsar.measured import PULSAR
from perf.spark.measured import SPARK
from perf.subject import Subject

MEASURED: Final[Mapping[str, Subject]] = {
    "beanstalk": BEANSTALK,
    "nsq": NSQ,
    "nats": NATS,
    "pulsar": PULSAR,
    "spark": SPARK,
}
