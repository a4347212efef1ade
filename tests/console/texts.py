"""How a change is said."""

from __future__ import annotations

import json

from tests.nsq.api import Reply, call
from tests.reader.broker import Broker


def act(broker: Broker, **said: object) -> Reply:
    return call(broker.port, "POST", "/v1/act", json.dumps(said).encode(), {"Content-Type": "application/json"})
