"""Names of Pulsar's: of tenants, namespaces and topics, and by what name the core knows a topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from sys import intern
from typing import Final

from mq_shards.csrc._core import lib

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
DEFAULT_NAMESPACE: Final = "public/default"
# Of a topic, as the core takes it; a namespace's prefix is a part of it.
MAX_NAME_BYTES: Final[int] = lib.TOPIC_NAME_BYTES

# Of a topic: what compaction has kept, and what is to be kept, which are nobody's to consume. COMPACTION_NAME and
# RETENTION_NAME, csrc/ringbuf/message.h
COMPACTION: Final = "__compaction"
RETENTION: Final = "__retention"
# Where clients look for transaction coordinators: a topic of as many partitions as there are.
ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign"
COORDINATORS: Final = 1
# A real broker may have addresses by name for clients that say one.
NO_LISTENER: Final = "the broker do not have {} listener"
MAX_SUBSCRIPTION_BYTES: Final = 255  # CHANNEL_NAME_MAX, csrc/shards/subscription.h

_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")


class PulsarNameError(ValueError):
    """No tenant, namespace, topic or subscription can have this name."""


@dataclass(frozen=True, slots=True)
class TopicName:
    domain: str
    tenant: str
    namespace_local: str
    local: str

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_local}"

    @property
    def partition(self) -> int:
        """-1: it is none."""
        found = _PARTITION.fullmatch(self.local)
        return -1 if found is None else int(found[2])

    @property
    def base(self) -> TopicName:
        """The partitioned topic that this may be a partition of; itself when it is not called so."""
        found = _PARTITION.fullmatch(self.local)
        return self if found is None else TopicName(self.domain, self.tenant, self.namespace_local, found[1])

    def of_partition(self, index: int) -> TopicName:
        return TopicName(self.domain, self.tenant, self.namespace_local, f"{self.local}-partition-{index}")

    @property
    def core(self) -> str:
        """What a worker calls it: in the default namespace the last part alone, as other protocols have it."""
        if self.domain == PERSISTENT and self.namespace == DEFAULT_NAMESPACE:
            return self.local
        return str(self)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace_local}/{self.local}"


def topic_name(text: str) -> TopicName:
    """Raises PulsarNameError."""
    domain, found, rest = text.partition("://")
    if not found:
        domain, rest = PERSISTENT, text
        words = sum(bool(word) for word in text.split("/"))
        if words not in (1, 3):
            form = "it should be in the format of <tenant>/<namespace>/<topic> or <topic>"
            raise PulsarNameError(f"Invalid short topic name '{text}', {form}")
        if words == 1:
            rest = f"{DEFAULT_NAMESPACE}/{text}"
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise PulsarNameError(f"Invalid topic domain: '{domain}'")
    parts = rest.split("/", 2)
    if len(parts) != 3 or parts[2].startswith("/"):
        raise PulsarNameError(f"Invalid topic name: {text}")
    if not parts[2]:
        raise PulsarNameError(f"Invalid topic name: {text}. Topic local name must not be blank.")
    check_namespace(f"{parts[0]}/{parts[1]}")
    # Of the topics that are in use most parts are the same: they are kept once.
    name = TopicName(intern(domain), intern(parts[0]), intern(parts[1]), intern(parts[2]))
    if len(name.core.encode()) > MAX_NAME_BYTES:
        raise PulsarNameError(f"Invalid topic name: {text} is longer than {MAX_NAME_BYTES} bytes")
    return name


def check_entity(name: str) -> str:
    """A tenant's name, or the second part of a namespace's."""
    if _ENTITY.fullmatch(name) is None or len(name) > MAX_NAME_BYTES:
        raise PulsarNameError(f"Invalid named entity: {name}")
    return name


def check_namespace(name: str) -> str:
    tenant, slash, local = name.partition("/")
    if not slash or _ENTITY.fullmatch(tenant) is None or _ENTITY.fullmatch(local) is None:
        raise PulsarNameError(f"Invalid namespace format. namespace: {name}")
    return name


def check_subscription(name: str) -> str:
    """One that clients may have."""
    if name == COMPACTION:
        raise PulsarNameError("The subscription of the topic's compaction")
    if name == RETENTION:
        raise PulsarNameError("The subscription that keeps the topic's messages")
    if len(name.encode()) > MAX_SUBSCRIPTION_BYTES or "\n" in name:
        raise PulsarNameError(f"The name of a subscription has {MAX_SUBSCRIPTION_BYTES} bytes at most, and no line end")
    return name


def topic_of_core(core: str) -> TopicName | None:
    """The name that Pulsar's clients have for what a worker calls so; None: they can have none."""
    try:
        return topic_name(core) if "://" in core else topic_name(f"{PERSISTENT}://{DEFAULT_NAMESPACE}/{core}")
    except PulsarNameError:
        return None
