"""What is known of a client of NSQ's, and the frames that are sent to it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from mq_shards.acceptor.access.rights import Login
from mq_shards.acceptor.protocols.nsq.identify import Terms, Upgrade

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nsq.auth import Authorizations, Outcome, Question

RESPONSE: Final = 0
ERROR: Final = 1
OK: Final = b"OK"

WhenAsked: TypeAlias = Callable[["Outcome"], None]


@dataclass(slots=True, eq=False, repr=False)
class Asking:
    """A question to the auth server that is under way."""

    question: Question
    then: WhenAsked


@dataclass(slots=True, eq=False, repr=False)
class Client:
    """The state of a connection."""

    connected_s: int
    terms: Terms  # of the last IDENTIFY, as it was answered
    # The terms that are applied, those of the first IDENTIFY: nsqd too applies no later ones.
    sent_terms: Terms | None = None
    client_id: str | None = None
    hostname: str | None = None
    user_agent: str = ""
    subscribed: bool = False
    subscribing: tuple[bytes, bytes] | None = None
    asked_again: bool = False  # by the same SUB, since the worker died that it had been sent to
    consumes: bytes = b""  # the topic it has subscribed to
    login: Login | None = None  # None also where no users are configured
    secret: bytes = b""
    authorizations: Authorizations | None = None
    asking: Asking | None = None
    upgrade: Upgrade | None = None  # the filters that it has, or gets after the handshake
    snappy: bool = False
    deflate: bool = False

    @property
    def authorized(self) -> bool:
        return self.login is not None or (self.authorizations is not None and len(self.authorizations.entries) > 0)


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">II", 4 + len(data), kind) + data
