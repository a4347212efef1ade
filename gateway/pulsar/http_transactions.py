"""REST: figures of transactions, as a real broker with one coordinator has them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from mq_shards.acceptor.protocols.pulsar.names import TopicName, topic_name
from mq_shards.csrc._core import lib
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import ABORTING, Transaction
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError, Pending
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of
from mq_shards.gateway.pulsar.transactions import Coordinator

Starts: TypeAlias = dict[tuple[int, str], str]  # by transaction, and the core's name of a topic: ledger:entry

NOBODY: Final = (1 << 63) - 1  # the id of no transaction
MAX_DIGITS: Final = 9
MAX_ASKED: Final = 100  # subscriptions of a transaction whose cumulative acks are shown
PREFIX: Final = "/admin/v3/transactions"
_TOPIC: Final = "{tenant}/{namespace}/{topic}"


class HttpTransactions:
    def __init__(self, control: Control, coordinator: Coordinator, url: str) -> None:
        """`url`: where clients reach the coordinator."""
        self._control = control
        self._coordinator = coordinator
        self._url = url
        self.routes: Routes = {
            f"{PREFIX}/coordinators": {"GET": self._coordinators},
            f"{PREFIX}/coordinatorStats": {"GET": self._stats},
            f"{PREFIX}/transactionMetadata/{{most}}/{{least}}": {"GET": self._metadata},
            f"{PREFIX}/slowTransactions/{{timeout}}": {"GET": self._slow},
            f"{PREFIX}/transactionBufferStats/{_TOPIC}": {"GET": self._buffer},
            f"{PREFIX}/pendingAckStats/{_TOPIC}/{{subscription}}": {"GET": self._pending},
            f"{PREFIX}/transactionInBufferStats/{_TOPIC}/{{most}}/{{least}}": {"GET": self._in_buffer},
            f"{PREFIX}/transactionInPendingAckStats/{_TOPIC}/{{subscription}}/{{most}}/{{least}}": {
                "GET": self._in_pending
            },
            f"{PREFIX}/positionStatsInPendingAck/{_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}": {"GET": self._place},
            f"{PREFIX}/abortTransaction/{{most}}/{{least}}": {"POST": self._abort},
        }

    async def _coordinators(self, _call: Call) -> Answer:
        return json_of([{"id": 0, "brokerServiceUrl": self._url}])

    def _check_coordinator(self, call: Call) -> bool:
        """Whether the request names the coordinator. Raises RefusedError if it names another one."""
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
        if call.number("most") != 0:
            raise not_found(f"Transaction coordinator with id {call.number('most')} not found!")
        found = self._find(call)
        if found is None:
            why = f"The transaction with this txdID `({call.number('most')},{call.number('least')})`not found "
            raise RefusedError(404, "TransactionNotFound", why)
        shown = _shown(found, await self._starts())
        said = found.said or {}
        if len(found.subscriptions) <= MAX_ASKED:
            for topic, subscription in found.subscriptions:
                upto = await self._upto(topic_name(topic), subscription, found.id)
                shown["ackedPartitions"][said.get(topic, topic)][subscription] = upto
        return json_of(shown)

    async def _slow(self, call: Call) -> Answer:
        self._check_coordinator(call)
        found, starts = self._coordinator.slow(call.number("timeout")), await self._starts()
        return json_of({f"(0,{one.id})": _shown(one, starts) for one in found})

    async def _starts(self) -> Starts:
        """The first message of each transaction in each topic, as workers have them."""
        found = await self._control.core.transactions()
        return {(one.id, one.topic): one.start for one in found if one.start is not None}

    async def _abort(self, call: Call) -> Answer:
        if call.number("most") != 0:
            raise not_found(f"Transaction coordinator with id {call.number('most')} not found!")
        await self._coordinator.abort(call.number("least"))
        return NO_CONTENT

    async def _topic(self, call: Call) -> TopicName:
        names = call.names
        name = self._control.name(f"persistent://{names['tenant']}/{names['namespace']}/{names['topic']}")
        if not await self._control.exists(name):
            raise not_found(f"Topic not found {name}")
        return name

    async def _buffer(self, call: Call) -> Answer:
        name = await self._topic(call)
        where = await self._control.core.position(name.core)
        found = await self._control.core.transactions()
        open_ones = {one.id for one in found if one.topic == name.core and one.start}
        last = -1 if where.last_seq == lib.NO_PLACE else where.last_seq
        return json_of({
            "state": "Ready" if open_ones else "NoSnapshot", "maxReadPosition": f"{where.incarnation}:{last}",
            "lastSnapshotTimestamps": 0, "ongoingTxnSize": len(open_ones), **self._recovered(),
            **({"lowWaterMarks": {}} if call.flag("lowWaterMarks") else {}),
            "totalAbortedTransactions": 0, "snapshotType": "Single",
        })  # fmt: skip

    async def _pending(self, call: Call) -> Answer:
        name, subscription = await self._topic(call), call.names["subscription"]
        if subscription not in await self._control.subscriptions(name):
            raise not_found(f"{name} not found subscription : {subscription}")
        took_part = (str(name), subscription)
        count = sum(took_part in one.subscriptions for one in self._coordinator.open.values())
        shown = {"state": "Ready" if count else "None", "ongoingTxnSize": count, **self._recovered()}
        return json_of({**shown, "lowWaterMarks": {}} if call.flag("lowWaterMarks") else shown)

    def _recovered(self) -> dict[str, int]:
        at_ms = self._coordinator.started_ms
        return {"recoverStartTime": at_ms, "recoverEndTime": at_ms}

    async def _in_buffer(self, call: Call) -> Answer:
        name, id = await self._topic(call), call.number("least") if call.number("most") == 0 else -1
        shown: dict[str, Any] = {"aborted": self._coordinator.was_aborted(id)}
        start = (await self._starts()).get((id, name.core))
        return json_of({"startPosition": start, **shown} if start is not None else shown)

    async def _in_pending(self, call: Call) -> Answer:
        name, subscription = await self._topic(call), call.names["subscription"]
        if subscription not in await self._control.subscriptions(name):
            raise not_found(f"{name} not found subscription : {subscription}")
        id = call.number("least") if call.number("most") == 0 else NOBODY
        return json_of(await self._upto(name, subscription, id))

    async def _upto(self, name: TopicName, subscription: str, id: int) -> dict[str, Any]:
        """The position of a transaction's cumulative ack, if it has one."""
        try:
            found = await self._control.core.pending(name.core, subscription, id)
            where = await self._control.core.position(name.core)
        except (NoTopicError, NoSubscriptionError):
            return {}
        return {} if found.upto is None else {"cumulativeAckPosition": f"{where.incarnation}:{found.upto}"}

    async def _place(self, call: Call) -> Answer:
        """Whether open transactions have acknowledged one message."""
        name, subscription = await self._topic(call), call.names["subscription"]
        if subscription not in await self._control.subscriptions(name):
            raise not_found(f"{name} not found subscription : {subscription}")
        index, ledger, entry = _index(call), call.number("ledger"), call.number("entry")
        where = await self._control.core.position(name.core, subscription)
        found = await self._control.core.pending(name.core, subscription, NOBODY, max(entry, 0))
        if ledger < where.incarnation or (ledger == where.incarnation and entry < where.unfinished):
            state = "MarkDelete"
        elif ledger != where.incarnation:
            state = "NotInPendingAck"
        else:
            state = _state(found, index)
        return json_of({"state": state})


def _index(call: Call) -> int | None:
    given = call.fields.get("batchIndex", "")
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > MAX_DIGITS:
        raise RefusedError(404, "MetadataError", "HTTP 404 Not Found")
    return int(given)


def _state(found: Pending, index: int | None) -> str:
    """The state of a message. `index`: its number in its batch."""
    pending = found.whole or bool(found.parts)
    if index is None or not pending:
        return "PendingAck" if pending else "NotInPendingAck"
    if index >= min(found.parts, 64 * len(found.bits)):
        return "InvalidPosition"
    return "PendingAck" if found.bits[index // 64] >> index % 64 & 1 else "NotInPendingAck"


def _shown(transaction: Transaction, starts: Starts) -> dict[str, Any]:
    def produced(topic: str) -> dict[str, Any]:
        found: dict[str, Any] = {"aborted": transaction.status == ABORTING}
        start = starts.get((transaction.id, topic_name(topic).core))
        return {"startPosition": start, **found} if start is not None else found

    said = transaction.said or {}
    acknowledged: dict[str, dict[str, Any]] = {}
    for topic, subscription in sorted(transaction.subscriptions):
        acknowledged.setdefault(said.get(topic, topic), {})[subscription] = {}
    shown: dict[str, Any] = {
        "txnId": f"(0,{transaction.id})",
        "status": transaction.status,
        "openTimestamp": transaction.opened_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": {said.get(topic, topic): produced(topic) for topic in sorted(transaction.topics)},
        "ackedPartitions": acknowledged,
    }
    if transaction.owner:
        shown["owner"] = transaction.owner
    return shown
