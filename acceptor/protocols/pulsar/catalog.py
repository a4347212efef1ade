"""The catalog as an acceptor sees it. The gateway keeps it and is asked about it, as docs/pulsar-catalog.md says.

While the gateway is down nothing can be created, but traffic goes on: a topic that a worker has is served, with the
policies known last.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import orjson
from mq_shards.acceptor.protocols.pulsar.clients import SERVICE_NOT_READY, PulsarError
from mq_shards.acceptor.protocols.pulsar.names import TopicName, topic_of_core
from mq_shards.ringbuf.calls import Calls, Reply
from mq_shards.ringbuf.time_units import SECOND_NS

log = logging.getLogger(__name__)

# How long a client waits for a gateway that is busy or down. Time that it has already been down counts.
TIMEOUT_NS: Final = 3 * SECOND_NS
OWN_AT_ONCE: Final = 100  # topics whose own policies are asked for together
LIST_NS: Final = 20 * SECOND_NS  # for a list of topics, of which there may be a million

# ServerError, by name.
ERRORS: Final = {
    "UnknownError": 0,
    "MetadataError": 1, "PersistenceError": 2, "AuthenticationError": 3, "AuthorizationError": 4, "ConsumerBusy": 5,
    "ServiceNotReady": 6,
    "ProducerBlockedQuotaExceededError": 7, "ProducerBlockedQuotaExceededException": 8,
    "TopicNotFound": 11, "SubscriptionNotFound": 12, "TooManyRequests": 14,
    "TopicTerminatedError": 15, "ProducerBusy": 16, "InvalidTopicName": 17, "IncompatibleSchema": 18,
    "InvalidTxnStatus": 21, "NotAllowedError": 22, "TransactionNotFound": 24, "ProducerFenced": 25,
}  # fmt: skip

Fields: TypeAlias = dict[str, Any]
# Is called with the answer, or with the reason why there is none.
Heard: TypeAlias = Callable[[Fields | PulsarError], None]


class GatewayDownError(PulsarError):
    """The gateway did not answer, so nothing has been refused."""

    def __init__(self) -> None:
        super().__init__(SERVICE_NOT_READY, "The broker's catalog cannot be asked now")


def handle(what: str, heard: Heard, found: Callable[[], Fields | PulsarError]) -> None:
    """Gives `heard` what the gateway says of `what`. If that cannot be handled because of a defect of ours, `heard` is
    given an error instead, so that the client who waits gets an answer."""
    try:
        heard(found())
    except Exception:
        log.exception("cannot handle the answer to %s", what)
        heard(PulsarError(ERRORS["UnknownError"], f"The broker cannot handle the answer to {what}"))


class Catalog:
    def __init__(self, calls: Calls | None, refused: Callable[[], None], used: Callable[[], Iterable[str]]) -> None:
        """`refused` is called when the gateway answers that a client lacks a permission; `used` returns the topics that
        clients use, by the core's names."""
        self._calls = calls
        self._refused = refused
        self._used = used
        self._policies: dict[str, Fields] = {}  # by namespace, of those in use
        self._own: dict[str, Fields] = {}  # by topic, of those with policies of their own
        self.on_policies: list[Callable[[str], None]] = []  # called with a namespace whose policies changed
        self._anew: Iterator[tuple[str, list[str]]] = iter(())  # namespaces, with topics, to be asked for again
        self._asking = False  # for the first of them
        if calls is not None:
            calls.hear("pulsar.policies", self._told)
            calls.on_lost(self._ask_anew)

    def policies(self, topic: TopicName) -> Fields:
        """The policies of a topic as known last: its own override its namespace's. Empty if none are known."""
        own = self._own.get(str(topic.base))
        found = self._policies.get(topic.namespace, {})
        return {**found, **own} if own else found

    def learn(self, namespace: str, policies: Fields, topic: str | None = None, own: Fields | None = None) -> None:
        """Notes the policies of a namespace; `own`: those of the topic itself."""
        changed = self._policies.get(namespace) != policies
        self._policies[namespace] = policies
        if topic is not None and own != self._own.get(topic, {}):
            changed = True
            self._own.pop(topic, None)
            if own:
                self._own[topic] = own
        if changed:
            self._changed(namespace)

    def _ask_anew(self) -> None:
        """What was told may not be so any more: asks for all that is known, one thing after the other. Of a topic that
        is used nothing may be known because its first policies were not heard of."""
        self._anew = self._to_ask_for()
        self._ask_next()

    def _to_ask_for(self) -> Iterator[tuple[str, list[str]]]:
        """So many topics at a time, as there may be very many."""
        seen: set[str] = set()
        used = (str(name.base) for core in list(self._used()) if (name := topic_of_core(core)) is not None)
        topics = itertools.chain(list(self._own), used)
        while some := list(itertools.islice(topics, OWN_AT_ONCE)):
            of: dict[str, list[str]] = {}
            for topic in dict.fromkeys(some):
                of.setdefault(topic.partition("://")[2].rpartition("/")[0], []).append(topic)
            seen.update(of)
            yield from of.items()
        yield from [(namespace, []) for namespace in self._policies if namespace not in seen]

    def _ask_next(self) -> None:
        if self._asking or (wanted := next(self._anew, None)) is None:
            return
        namespace, topics = wanted

        def heard(found: Fields | PulsarError) -> None:
            self._asking = False
            if isinstance(found, GatewayDownError):  # when it is back all is asked for again
                self._anew = iter(())
            elif not isinstance(found, PulsarError) and found["policies"] is None:
                self._policies.pop(namespace, None)
            elif not isinstance(found, PulsarError) and namespace in self._policies:
                self.learn(namespace, found["policies"])
                for topic, own in found["topics"].items():
                    self.learn(namespace, found["policies"], topic, own)
            self._ask_next()

        self._asking = True
        self.ask("policies", heard, namespace=namespace, topics=topics)

    def _changed(self, namespace: str) -> None:
        for hear in self.on_policies:
            hear(namespace)

    def _told(self, body: bytes) -> None:
        told = orjson.loads(body)
        if told["policies"] is None:
            self._policies.pop(told["namespace"], None)
        elif told["namespace"] in self._policies:
            self.learn(told["namespace"], told["policies"], told.get("topic"), told.get("topic_policies", {}))

    def _read(self, reply: Reply) -> Fields | PulsarError:
        if not reply.ok:
            return GatewayDownError()
        found: Fields = orjson.loads(reply.body)
        if "error" not in found:
            return found
        if found["error"] == "AuthorizationError":
            self._refused()
        return PulsarError(ERRORS.get(found["error"], SERVICE_NOT_READY), found["reason"])

    def ask(
        self, what: str, heard: Heard, *, again: bool = True, timeout_ns: int | None = None,
        answer_ns: int = TIMEOUT_NS, **fields: object,
    ) -> None:  # fmt: skip
        """Asks the gateway. `heard` is called later, or at once if there is no gateway at all. `answer_ns`: how long
        a gateway that is there may take; `timeout_ns`: how long to wait in any case."""

        def answered(reply: Reply) -> None:
            handle(what, heard, lambda: self._read(reply))

        if self._calls is None:
            heard(GatewayDownError())
            return
        if timeout_ns is None:
            absent_ns = self._calls.absent_ns
            # Until it is there, if that is soon; else the client is better off with an answer.
            timeout_ns = max(TIMEOUT_NS - absent_ns, 0) if absent_ns > -TIMEOUT_NS else 0
            if not absent_ns:
                timeout_ns = answer_ns
        self._calls.ask(f"pulsar.{what}", orjson.dumps(fields), answered, timeout_ns=timeout_ns, again=again)
