"""What a role may do. Super users may do everything, administrators of a tenant everything in it, other roles what was
granted to them for a namespace, a topic or a subscription. Acceptors and the REST API ask; nothing is stored here.

A role that acts for another, as a proxy does, may only do what both roles may do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.access.rights import CONSUME as RECEIVE
from mq_shards.acceptor.access.rights import MANAGE, PUBLISH, READ, RIGHTS, User, Users
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.gateway.pulsar.catalog import Catalog, Json

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
PACKAGES: Final = "packages"

# Operations on a topic that need the right to consume, and operations that need the right to consume or to produce.
_CONSUMERS: Final = frozenset((
    "GET_SUBSCRIPTIONS", "CONSUME", "SUBSCRIBE", "UNSUBSCRIBE", "SKIP", "EXPIRE_MESSAGES", "PEEK_MESSAGES",
    "RESET_CURSOR", "GET_BACKLOG_SIZE", "GET_REPLICATED_SUBSCRIPTION_STATUS", "SET_REPLICATED_SUBSCRIPTION_STATUS",
))  # fmt: skip
_EITHER: Final = frozenset(("LOOKUP", "GET_STATS", "GET_METADATA"))
# Operations on a topic that need another right of a user than MANAGE.
_RIGHT_OF: Final[Mapping[str, str]] = {
    "PRODUCE": PUBLISH, "CONSUME": RECEIVE, "SUBSCRIBE": RECEIVE, "UNSUBSCRIBE": RECEIVE, "GET_SUBSCRIPTIONS": RECEIVE,
    "PEEK_MESSAGES": READ, "GET_BACKLOG_SIZE": RECEIVE,
}  # fmt: skip
# The same two sets for a namespace.
_NAMESPACE_EITHER: Final = frozenset(("GET_TOPIC", "GET_TOPICS", "GET_BUNDLE"))
_NAMESPACE_CONSUMERS: Final = frozenset(("UNSUBSCRIBE", "CLEAR_BACKLOG"))


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks. `original`: the role for which a proxy acts; "": none."""

    role: str
    original: str = ""
    is_open: bool = False  # came to a listener without authentication


class Roles:
    def __init__(
        self, settings: Mapping[str, Any], catalog: Callable[[], Catalog], users: Callable[[], Users | None]
    ) -> None:
        """`users`: returns the users that all protocols share, or None. A role that has the name of a user also has the
        rights of that user."""
        self._authorizes = bool(settings["authorization-enabled"])
        self._users = users
        self._supers = frozenset(settings["super-user-roles"])
        self._proxies = frozenset(settings["proxy-roles"])
        self._catalog = catalog

    @property
    def enabled(self) -> bool:
        """Whether roles are checked at all."""
        return self._authorizes or self._users() is not None

    @property
    def has_users(self) -> bool:
        return self._users() is not None

    # --- whole answers ----------------------------------------------------------------------------------------------

    def is_super(self, who: Who) -> bool:
        return self._both(who, lambda role: role in self._supers or self._manages_all(role))

    def administers(self, who: Who, tenant: str) -> bool:
        return self._both(who, lambda role: self._is_admin(role, tenant))

    def may_in_namespace(self, who: Who, namespace: str, operation: str) -> bool:
        return self._both(who, lambda role: self._in_namespace(role, namespace, operation))

    def may_with_topic(self, who: Who, topic: TopicName, operation: str, subscription: str = "") -> bool:
        return self._both(who, lambda role: self._with_topic(role, topic, operation, subscription))

    def _both(self, who: Who, may: Callable[[str], bool]) -> bool:
        if not self.enabled or who.is_open:
            return True
        if (who.role in self._proxies) != bool(who.original) or who.original in self._proxies:
            return False
        return may(who.role) and (not who.original or may(who.original))

    def has_tenant(self, tenant: str) -> bool:
        return tenant in self._catalog().tenants

    # --- of one role ------------------------------------------------------------------------------------------------

    def _user(self, role: str) -> User | None:
        users = self._users()
        return None if users is None else users.by_name.get(role)

    def _manages_all(self, role: str) -> bool:
        user = self._user(role)
        return user is not None and user.may_all(MANAGE)

    def _is_admin(self, role: str, tenant: str) -> bool:
        found = self._catalog().tenants.get(tenant)
        return role in self._supers or self._manages_all(role) or (found is not None and role in found["adminRoles"])

    def _auth(self, namespace: str) -> Json:
        found = self._catalog().namespaces.get(namespace)
        return {} if found is None else found.policies.get("auth_policies") or {}

    def _granted(self, role: str, namespace: str) -> list[str]:
        found: list[str] = self._auth(namespace).get("namespace_auth", {}).get(role, [])
        return found

    def _granted_for(self, role: str, topic: TopicName) -> list[str]:
        """What was granted to a role in the namespace, for the topic, and for the topic that this is a partition of."""
        found = list(self._granted(role, topic.namespace))
        for name in dict.fromkeys((str(topic), str(topic.base))):
            one = self._catalog().topic(topic.namespace, name)
            found += one.permissions.get(role, []) if one is not None else []
        return found

    def _in_namespace(self, role: str, namespace: str, operation: str) -> bool:
        if self._is_admin(role, namespace.partition("/")[0]):
            return True
        granted = self._granted(role, namespace)
        if operation in _NAMESPACE_EITHER:
            return self._user(role) is not None or PRODUCE in granted or CONSUME in granted
        if operation in _NAMESPACE_CONSUMERS:
            return CONSUME in granted
        return operation == "PACKAGES" and PACKAGES in granted

    def _with_topic(self, role: str, topic: TopicName, operation: str, subscription: str) -> bool:
        if self._is_admin(role, topic.tenant):
            return True
        user = self._user(role)
        if user is not None and _user_may(user, topic, operation):
            return True
        granted = self._granted_for(role, topic)
        if operation == "PRODUCE":
            return PRODUCE in granted
        if operation in _EITHER:
            return PRODUCE in granted or CONSUME in granted
        if operation not in _CONSUMERS:
            return False
        only: list[str] = self._auth(topic.namespace).get("subscription_auth_roles", {}).get(subscription, [])
        return CONSUME in granted and (not only or role in only)


def _user_may(user: User, topic: TopicName, operation: str) -> bool:
    """Whether a user may do it. What it may do with a partitioned topic it may do with each partition."""
    needed = RIGHTS if operation in _EITHER else (_RIGHT_OF.get(operation, MANAGE),)
    return any(user.may(right, name) for right in needed for name in (topic.core, topic.base.core))
