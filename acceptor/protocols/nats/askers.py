"""Which clients the codec can describe: those whose account makes requests to services that are told who asks, and all
if some service is measured, since its results tell who answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats.shares import needs_info
from mq_shards.acceptor.protocols.nats.user_info import asker

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocol import Broker
    from mq_shards.acceptor.protocols.nats.admission import Admission
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.latencies import Latencies
    from mq_shards.acceptor.protocols.nats.own_client import OwnClients


class Askers:
    def __init__(self, engine: Engine, protocol: int, broker: Broker, own: OwnClients, admission: Admission) -> None:
        self._engine = engine
        self._protocol = protocol
        self._broker = broker
        self._own = own
        self._admission = admission
        self._told: set[str] = set()  # accounts
        self._measured: dict[str, list[Mapping[str, Any]]] = {}  # by account: exports of services that are measured
        self._latencies: Latencies | None = None

    def learn(self, accounts: Mapping[str, Mapping[str, Any]], names: set[str] | None, system_account: str) -> bool:
        """The accounts `names` have changed; None: any may have. Returns whether all clients have to be described."""
        was_any = bool(self._measured)
        if names is None:
            names = set(accounts)
            self._told.clear()
            self._measured.clear()
        for name in names:
            account = accounts[name]
            (self._told.add if needs_info(account) else self._told.discard)(name)
            self._measured[name] = [export for export in account.get("exports", ()) if "latency" in export]
            if not self._measured[name]:
                del self._measured[name]
        if self._measured:
            self._measure(system_account)
        return bool(self._measured) and not was_any

    def _measure(self, system_account: str) -> None:
        if self._latencies is None and self._broker.watched is not None:
            from mq_shards.acceptor.protocols.nats.latencies import Latencies

            number = self._admission.account(system_account)
            self._latencies = Latencies(self._engine, self._protocol, self._broker.watched, system_account, number)
            self._own.add(self._latencies.client)
        if self._latencies is not None:
            self._latencies.learn(export for exports in self._measured.values() for export in exports)

    def described(self, client: Client, server_name: str, cluster: str) -> bytes:
        """What the codec shall tell of a client; empty: nothing."""
        is_told = bool(self._measured) or client.account in self._told
        return asker(client, server_name, cluster) if is_told else b""

    def wait_ns(self) -> int:
        return self._latencies.wait_ns() if self._latencies is not None else FOREVER

    def expire(self) -> None:
        if self._latencies is not None:
            self._latencies.expire()
