"""REST: what cannot be asked about topics that are not persistent, and how a real broker refuses it.

Where a real broker fails with an exception of Java's (500), the answer here is the one that it gives elsewhere.
"""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Handler, Routes

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscription/{{subscription}}"
NOTHING_TO_DO: Final = (204, "")


def _not_allowed(what: str) -> tuple[int, str]:
    return 405, f"{what} on a non-persistent topic is not allowed"


_REFUSED: Final = {
    ("POST", f"{_TOPIC}/terminate"): (406, "Need to provide a persistent topic name"),
    ("POST", f"{_TOPIC}/trim"): _not_allowed("Trim"),
    ("GET", f"{_TOPIC}/lastMessageId"): _not_allowed("GetLastMessageId"),
    ("GET", f"{_TOPIC}/examinemessage"): _not_allowed("Examine messages"),
    ("GET", f"{_TOPIC}/messageid/{{time}}"): _not_allowed("Get message ID by timestamp"),
    ("GET", f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}"): _not_allowed("Get message by id"),
    ("PUT", f"{_TOPIC}/backlogSize"): _not_allowed("Get backlog size"),
    ("DELETE", f"{_TOPIC}/truncate"): (412, "unsupport truncate"),
    ("POST", f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}"): _not_allowed(
        "Expire messages for all subscriptions"
    ),
    ("PUT", _SUBSCRIPTION): (400, "Create subscription on non-persistent topic can only be done through client"),
    ("GET", f"{_SUBSCRIPTION}/position/{{place}}"): _not_allowed("Peek messages"),
    ("POST", f"{_SUBSCRIPTION}/expireMessages"): _not_allowed("Expire messages"),
    ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}"): _not_allowed("Expire messages"),
    ("POST", f"{_SUBSCRIPTION}/skip/{{count}}"): _not_allowed("Skip messages"),
    ("POST", f"{_SUBSCRIPTION}/skip_all"): _not_allowed("Skip messages"),
    ("POST", f"{_SUBSCRIPTION}/resetcursor"): _not_allowed("Reset cursor"),
    ("POST", f"{_SUBSCRIPTION}/resetcursor/{{time}}"): NOTHING_TO_DO,
    ("POST", f"{_SUBSCRIPTION}/analyzeBacklog"): _not_allowed("Analyze backlog"),
}


def refusing(routes: Routes) -> Routes:
    """The same routes, whose handlers are asked only about topics for which there is an answer."""
    left = dict(_REFUSED)
    found = {
        path: {method: _guarded(handler, left.pop((method, path), None)) for method, handler in methods.items()}
        for path, methods in routes.items()
    }
    assert not left, left
    return found


def _guarded(handler: Handler, refusal: tuple[int, str] | None) -> Handler:
    if refusal is None:
        return handler

    async def answer(call: Call) -> Answer:
        if call.names["domain"] == NON_PERSISTENT:
            if refusal == NOTHING_TO_DO:
                return NO_CONTENT
            raise RefusedError(refusal[0], "NotAllowedError", refusal[1])
        return await handler(call)

    return answer
