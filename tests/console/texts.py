"""How a change is said, and a long name."""

from __future__ import annotations

import json

from tests.nsq.api import Reply, call
from tests.reader.broker import Broker

LONG = "a.topic.with.a.name.that.is.as.long.as.names.can.be.in.nsq.1234"


def act(broker: Broker, **said: object) -> Reply:
    return call(broker.port, "POST", "/v1/act", json.dumps(said).encode(), {"Content-Type": "application/json"})
