"""Names of Pulsar's tenants, namespaces, topics and subscriptions, and the names that topics have in the core.

A namespace is `tenant/namespace` or, as before Pulsar 2.0, `tenant/cluster/namespace`: then a topic of it needs neither
the namespace nor the tenant nor the cluster to be there.
"""

from __future__ import annotations

import re
from sys import intern
from typing import Final, NamedTuple

from mq_shards.csrc._core import lib

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
DEFAULT_NAMESPACE: Final = "public/default"
_DEFAULT_TENANT, _, _DEFAULT_LOCAL = DEFAULT_NAMESPACE.partition("/")
# Of a topic's name in the core, including the namespace where that is part of it.
MAX_NAME_BYTES: Final[int] = lib.TOPIC_NAME_BYTES
SHOWN: Final = 80  # characters of a name that is too long

# Channels of a topic that clients may not consume from: its compacted view, and the messages that retention keeps.
# COMPACTION_NAME and RETENTION_NAME, csrc/ringbuf/message.h
COMPACTION: Final = "__compaction"
RETENTION: Final = "__retention"
# The topic at which clients look for transaction coordinators: it has a partition for each.
ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign"
COORDINATORS: Final = 1
# Said to a client that asks for a named listener: a real broker may have some, with addresses of their own.
NO_LISTENER: Final = "the broker do not have {} listener"
MAX_SUBSCRIPTION_BYTES: Final = 255  # CHANNEL_NAME_MAX, csrc/shards/subscription.h
MAX_TEXT: Final = 4 * MAX_NAME_BYTES  # of a name with tenant and namespace: what is longer takes long to parse
MAX_PROPERTIES: Final = 64  # of a topic or a subscription
MAX_PROPERTY_BYTES: Final = 4096  # of all of them, in UTF-8
MAX_PARTICIPANTS: Final = 10_000  # topics and subscriptions of one transaction
TOO_MANY_PARTICIPANTS: Final = "There is as much in this transaction as there may be"

_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")


class PulsarNameError(ValueError):
    """No tenant, namespace, topic or subscription can have this name."""


class TopicName(NamedTuple):
    domain: str
    tenant: str
    namespace_local: str  # with the cluster before it, where the name has one
    local: str

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_local}"

    @property
    def partition(self) -> int:
        """The partition's number; -1: the topic is no partition."""
        found = _PARTITION.fullmatch(self.local)
        return -1 if found is None else int(found[2])

    @property
    def base(self) -> TopicName:
        """The partitioned topic of which this is a partition by its name; else the topic itself."""
        found = _PARTITION.fullmatch(self.local)
        return self if found is None else TopicName(self.domain, self.tenant, self.namespace_local, found[1])

    def of_partition(self, index: int) -> TopicName:
        return TopicName(self.domain, self.tenant, self.namespace_local, f"{self.local}-partition-{index}")

    @property
    def core(self) -> str:
        """The name that workers and other protocols know: of public/default, what comes behind that, and so for
        namespaces of a cluster `default`."""
        if self.domain == PERSISTENT and self.tenant == _DEFAULT_TENANT:
            if self.namespace_local == _DEFAULT_LOCAL:
                return self.local
            if self.namespace_local.startswith(f"{_DEFAULT_LOCAL}/"):
                return f"{self.namespace_local[len(_DEFAULT_LOCAL) + 1 :]}/{self.local}"
        return str(self)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace_local}/{self.local}"


def topic_name(text: str) -> TopicName:
    """Parses the name of a topic. Raises PulsarNameError."""
    if len(text) > MAX_TEXT:
        raise PulsarNameError(f"Invalid topic name: {text[:SHOWN]}... has {len(text)} characters")
    domain, found, rest = text.partition("://")
    if not found:
        domain, rest = PERSISTENT, text
        words = sum(bool(word) for word in text.split("/"))
        if words not in (1, 3):
            form = "it should be in the format of <tenant>/<namespace>/<topic> or <topic>"
            raise PulsarNameError(f"Invalid short topic name '{text}', {form}")
        if words == 1:
            rest = f"{DEFAULT_NAMESPACE}/{text}"
        text = f"{domain}://{rest}"
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise PulsarNameError(f"Invalid topic domain: '{domain}'")
    *above, local = rest.split("/", 3)
    if len(above) < 2:
        raise PulsarNameError(f"Invalid topic name: {text}")
    namespace = check_namespace("/".join(above))
    if not local.strip():
        raise PulsarNameError(f"Invalid topic name: {text}. Topic local name must not be blank.")
    if "\n" in local:  # a request to a worker ends the name of a topic with one
        raise PulsarNameError(f"The name of a topic must not have a line end: {text!r}")
    tenant, _, namespace_local = namespace.partition("/")
    # Most topics share most parts, so each part is kept in memory once.
    name = TopicName(intern(domain), intern(tenant), intern(namespace_local), intern(local))
    if (size := len(name.core.encode())) > MAX_NAME_BYTES:
        raise PulsarNameError(f"Invalid topic name: {text[:SHOWN]}... has {size} bytes, {MAX_NAME_BYTES} at most")
    return name


def check_entity(name: str) -> str:
    """Checks the name of a tenant, or the second part of a namespace's. Raises PulsarNameError."""
    if _ENTITY.fullmatch(name) is None or len(name) > MAX_NAME_BYTES:
        raise PulsarNameError(f"Invalid named entity: {name}")
    return name


def check_namespace(name: str) -> str:
    parts = name.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise PulsarNameError(f"Invalid namespace format. namespace: {name}")
    for part in parts:
        check_entity(part)
    return name


def is_namespace(name: str) -> bool:
    try:
        check_namespace(name)
    except PulsarNameError:
        return False
    return True


def has_cluster(namespace: str) -> bool:
    return namespace.count("/") == 2


def cluster_of(namespace: str) -> str:
    """The cluster in its name; "": there is none, or `global`, which stands for those that its policies say."""
    cluster = namespace.split("/")[1] if has_cluster(namespace) else ""
    return "" if cluster == "global" else cluster


def is_local(namespace: str) -> bool:
    return cluster_of(namespace) != ""


def check_subscription(name: str) -> str:
    """Checks the name of a subscription of clients. Raises PulsarNameError."""
    if name == COMPACTION:
        raise PulsarNameError("The subscription of the topic's compaction")
    if name == RETENTION:
        raise PulsarNameError("The subscription that keeps the topic's messages")
    if len(name.encode()) > MAX_SUBSCRIPTION_BYTES or "\n" in name:
        raise PulsarNameError(f"The name of a subscription has {MAX_SUBSCRIPTION_BYTES} bytes at most, and no line end")
    return name


def topic_of_core(core: str) -> TopicName | None:
    """The topic that has this name in the core; None if it is not a valid name for Pulsar's clients."""
    try:
        return topic_name(core) if "://" in core else topic_name(f"{PERSISTENT}://{DEFAULT_NAMESPACE}/{core}")
    except PulsarNameError:
        return None
