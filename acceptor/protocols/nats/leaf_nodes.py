"""What the server of NATS's clients asks of leaf nodes and hubs, which nats_leaf.py serves."""

from __future__ import annotations

from typing import Any, Protocol


class LeafNodes(Protocol):
    @property
    def own_urls(self) -> tuple[str, ...]:
        """The URLs at which leaf nodes reach this server."""
        ...

    def look_again(self) -> None:
        """Users or permissions have changed."""

    def kick(self, cid: int) -> bool:
        """Closes the leaf node or hub of that id, or returns False."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """The rows of /leafz, and what /connz shows besides."""
        ...

    def shown(self) -> dict[str, Any]:
        """The settings of the block leafnodes, as /varz shows them."""
        ...
