"""The errors with which the control side refuses a request: acceptors get a name, HTTP clients a status."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, check_subscription


class RefusedError(Exception):
    """`error` is the name of a ServerError of the binary protocol."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status: Final = status
        self.error: Final = error
        self.reason: Final = reason


def not_found(reason: str) -> RefusedError:
    return RefusedError(404, "TopicNotFound", reason)


def conflict(reason: str) -> RefusedError:
    return RefusedError(409, "NotAllowedError", reason)


def precondition(reason: str) -> RefusedError:
    return RefusedError(412, "NotAllowedError", reason)


def unavailable(reason: str) -> RefusedError:
    return RefusedError(503, "ServiceNotReady", reason)


def too_many(reason: str) -> RefusedError:
    return RefusedError(412, "NotAllowedError", reason)


def subscription_name(name: str) -> str:
    """Checks a subscription's name. RefusedError: no client can have a subscription of that name."""
    try:
        return check_subscription(name)
    except PulsarNameError as error:
        raise RefusedError(405, "NotAllowedError", str(error)) from None


def bad_name(reason: str) -> RefusedError:
    return RefusedError(412, "InvalidTopicName", reason)
