"""Puts the parts of the console together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from mq_shards.gateway.console.actions import Actions
from mq_shards.gateway.console.detail import Detail
from mq_shards.gateway.console.figures import Figures
from mq_shards.gateway.console.http import ConsoleHttp
from mq_shards.gateway.console.overview import Identity, Overview
from mq_shards.gateway.console.peek import Peek
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.part import Shared

if TYPE_CHECKING:
    from mq_shards.shards.reader.view import DataView


class Console:
    """To be made where the event loop runs."""

    def __init__(
        self, shared: Shared, identity: Identity, view: Callable[[], DataView] | None, reading: Executor
    ) -> None:
        engine, workers, broker = shared.engine, shared.workers, shared.broker
        max_message_bytes = shared.terms.max_message_bytes
        waits = Waits(broker)
        self.figures: Final = Figures(engine, broker, waits)
        self.http: Final = ConsoleHttp(
            self.figures,
            waits,
            Overview(engine, broker, self.figures, identity),
            Detail(engine, workers, broker, self.figures, waits),
            Peek(engine, workers, view, reading),
            Actions(engine, workers, broker, shared.prepare_topic, max_message_bytes),
            shared.bodies,
            2 * max_message_bytes + 65536,  # base64 and escapes make a body longer in JSON
        )


def address_text(address: Mapping[str, Any]) -> str:
    """A listener's address, in the form of --listen."""
    if address.get("path"):
        return f"{address['protocol']}://unix:{address['path']}"
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return f"{address['protocol']}://{host}:{address['port']}"
