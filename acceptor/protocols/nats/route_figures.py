"""What the codec counts of a route or leaf node."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.engine import Engine

# In the order of the codec.
FIGURES: Final = (
    "in_msgs", "in_bytes", "out_msgs", "out_bytes", "pending_size", "rtt_ns", "subscriptions", "idle_ns", "number",
)  # fmt: skip


def figures_of(engine: Engine, conn: int) -> dict[str, int]:
    """The figures of a route or leaf node; all 0 if the connection has just been closed."""
    parts = engine.call_for_list(conn, "figures")
    numbers = [low | high << 32 for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return dict.fromkeys(FIGURES, 0) | dict(zip(FIGURES, numbers, strict=False))
