"""REST: figures of transactions, as a real broker with one coordinator has them."""

from __future__ import annotations

from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import ABORTING, Transaction
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found
from mq_shards.gateway.pulsar.requests import Call, Routes, json_of
from mq_shards.gateway.pulsar.transactions import Coordinator

PREFIX: Final = "/admin/v3/transactions"
_TOPIC: Final = "{tenant}/{namespace}/{topic}"


class HttpTransactions:
    def __init__(self, control: Control, coordinator: Coordinator, url: str) -> None:
        """`url`: where clients find the coordinator."""
        self._control = control
        self._coordinator = coordinator
        self._url = url
        self.routes: Routes = {
            f"{PREFIX}/coordinators": {"GET": self._coordinators},
            f"{PREFIX}/coordinatorStats": {"GET": self._stats},
            f"{PREFIX}/transactionMetadata/{{most}}/{{least}}": {"GET": self._metadata},
            f"{PREFIX}/slowTransactions/{{timeout}}": {"GET": self._slow},
            f"{PREFIX}/transactionInBufferStats/{_TOPIC}/{{most}}/{{least}}": {"GET": self._in_buffer},
            f"{PREFIX}/transactionInPendingAckStats/{_TOPIC}/{{subscription}}/{{most}}/{{least}}": {
                "GET": self._in_pending
            },
        }

    async def _coordinators(self, _call: Call) -> Answer:
        return json_of([{"id": 0, "brokerServiceUrl": self._url}])

    def _check_coordinator(self, call: Call) -> bool:
        """Whether the one is named; RefusedError when it is another."""
        named = call.fields.get("coordinatorId")
        if named not in (None, "", "0"):
            raise not_found(f"Transaction coordinator not found! coordinator id : {named}")
        return bool(named)

    async def _stats(self, call: Call) -> Answer:
        one = self._check_coordinator(call)
        found = self._coordinator.figures()
        return json_of(found if one else {"0": found})

    def _find(self, call: Call) -> Transaction | None:
        return self._coordinator.find(call.number("least")) if call.number("most") == 0 else None

    async def _metadata(self, call: Call) -> Answer:
        found = self._find(call)
        if found is None:
            why = f"The transaction with this txdID `({call.number('most')},{call.number('least')})`not found "
            raise RefusedError(404, "TransactionNotFound", why)
        return json_of(_shown(found))

    async def _slow(self, call: Call) -> Answer:
        self._check_coordinator(call)
        return json_of(
            {f"(0,{one.id})": _shown(one) for one in self._coordinator.slow(call.number("timeout"))}
        )

    async def _topic(self, call: Call) -> TopicName:
        names = call.names
        name = self._control.name(f"persistent://{names['tenant']}/{names['namespace']}/{names['topic']}")
        await self._control.check_exists(name)
        return name

    async def _in_buffer(self, call: Call) -> Answer:
        await self._topic(call)
        found = self._find(call)
        return json_of({"aborted": found is not None and found.status == ABORTING})

    async def _in_pending(self, call: Call) -> Answer:
        await self._topic(call)
        return json_of({})


def _shown(transaction: Transaction) -> dict[str, Any]:
    acknowledged: dict[str, dict[str, Any]] = {}
    for topic, subscription in sorted(transaction.subscriptions):
        acknowledged.setdefault(topic, {})[subscription] = {}
    shown: dict[str, Any] = {
        "txnId": f"(0,{transaction.id})",
        "status": transaction.status,
        "openTimestamp": transaction.opened_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": {
            topic: {"aborted": transaction.status == ABORTING} for topic in sorted(transaction.topics)
        },
        "ackedPartitions": acknowledged,
    }
    if transaction.owner:
        shown["owner"] = transaction.owner
    return shown
