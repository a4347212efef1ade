"""IDENTIFY: reads what a client tells about itself and asks for, and decides what it gets.

The ranges, the texts of errors and the order of the checks are those of nsqd 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
from mq_shards.acceptor.protocols import go_json
from mq_shards.acceptor.protocols.go_json import DecodeError, flag, int32, int64, text
from mq_shards.acceptor.protocols.nsq.options import NSQD_VERSION
from mq_shards.ringbuf.time_units import MS_NS

DEFAULT_OUTPUT_BUFFER_BYTES: Final = 16 << 10
DEFAULT_DEFLATE_LEVEL: Final = 6
HIGHEST_DEFLATE_LEVEL: Final = 9
# How much is kept of each text by which a client describes itself.
TEXT_CHARACTERS: Final = 512

FIELDS: Final[Mapping[str, go_json.Reader[Any]]] = {
    "client_id": text,
    "hostname": text,
    "heartbeat_interval": int64,
    "output_buffer_size": int64,
    "output_buffer_timeout": int64,
    "feature_negotiation": flag,
    "tls_v1": flag,
    "deflate": flag,
    "deflate_level": int64,
    "snappy": flag,
    "sample_rate": int32,
    "user_agent": text,
    "msg_timeout": int64,
}


class ClientError(Exception):
    """An error that the client is told before its connection is closed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")


class Request(NamedTuple):
    """The body of an IDENTIFY. Times are in milliseconds; 0: the default; -1: no heartbeats, or no buffering."""

    client_id: str = ""
    hostname: str = ""
    heartbeat_interval: int = 0
    output_buffer_size: int = 0
    output_buffer_timeout: int = 0
    feature_negotiation: bool = False
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 0
    snappy: bool = False
    sample_rate: int = 0
    user_agent: str = ""
    msg_timeout: int = 0


def parse(body: bytes) -> Request:
    """Raises ClientError."""
    try:
        return Request(**go_json.fields(go_json.loads(go_json.members(body, FIELDS)), FIELDS))
    except DecodeError:
        raise ClientError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None


@dataclass(slots=True, eq=False, repr=False)
class Terms:
    """The settings agreed on for one connection."""

    heartbeat_ns: int  # 0: no heartbeats
    output_buffer_timeout_ns: int  # 0: no buffering
    msg_timeout_ns: int
    output_buffer_bytes: int = DEFAULT_OUTPUT_BUFFER_BYTES
    sample_rate: int = 0  # percentage of messages that it gets; 0: all

    def change(self, request: Request, settings: Mapping[str, Any]) -> None:
        """Changes the terms as the client asks. Raises ClientError."""
        self._change_heartbeat(request.heartbeat_interval, settings)
        self._change_buffer(request, settings)
        if not 0 <= request.sample_rate <= 99:
            raise _invalid("sample rate", request.sample_rate)
        self.sample_rate = request.sample_rate
        if request.msg_timeout != 0:
            if not 1000 <= request.msg_timeout <= settings["max-msg-timeout"] // MS_NS:
                raise _invalid("msg timeout", request.msg_timeout)
            self.msg_timeout_ns = request.msg_timeout * MS_NS

    def _change_heartbeat(self, interval: int, settings: Mapping[str, Any]) -> None:
        if interval == -1:
            self.heartbeat_ns = 0
        elif interval != 0:
            if not 1000 <= interval <= settings["max-heartbeat-interval"] // MS_NS:
                raise _invalid("heartbeat interval", interval)
            self.heartbeat_ns = interval * MS_NS

    def _change_buffer(self, request: Request, settings: Mapping[str, Any]) -> None:
        timeout, size = request.output_buffer_timeout, request.output_buffer_size
        if timeout == -1:
            self.output_buffer_timeout_ns = 0
        elif timeout != 0:
            least = settings["min-output-buffer-timeout"] // MS_NS
            if not least <= timeout <= settings["max-output-buffer-timeout"] // MS_NS:
                raise _invalid("output buffer timeout", timeout)
            self.output_buffer_timeout_ns = timeout * MS_NS
        if size == -1:
            self.output_buffer_bytes = 1
            self.output_buffer_timeout_ns = 0
        elif size != 0:
            if not 64 <= size <= settings["max-output-buffer-size"]:
                raise _invalid("output buffer size", size)
            self.output_buffer_bytes = size


def default_terms(settings: Mapping[str, Any]) -> Terms:
    return Terms(settings["client-timeout"] // 2, settings["output-buffer-timeout"], settings["msg-timeout"])


class Upgrade(NamedTuple):
    """The filters that the connection gets."""

    tls: bool
    snappy: bool
    deflate_level: int | None  # None: no deflate

    def __bool__(self) -> bool:
        return self.tls or self.snappy or self.deflate_level is not None


def negotiate(
    request: Request, terms: Terms, settings: Mapping[str, Any], *, has_tls: bool, has_auth: bool
) -> tuple[bytes, Upgrade]:
    """Returns the answer, and the filters that begin behind it. Raises ClientError."""
    snappy = settings["snappy"] and request.snappy
    deflate = settings["deflate"] and request.deflate
    level = DEFAULT_DEFLATE_LEVEL
    if deflate and request.deflate_level > 0:
        level = request.deflate_level
    level = min(level, settings["max-deflate-level"], HIGHEST_DEFLATE_LEVEL)
    if deflate and snappy:
        raise ClientError("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")
    answer = {
        "max_rdy_count": settings["max-rdy-count"],
        "version": NSQD_VERSION,
        "max_msg_timeout": settings["max-msg-timeout"] // MS_NS,
        "msg_timeout": terms.msg_timeout_ns // MS_NS,
        "tls_v1": has_tls and request.tls_v1,
        "deflate": deflate,
        "deflate_level": level,
        "max_deflate_level": settings["max-deflate-level"],
        "snappy": snappy,
        "sample_rate": terms.sample_rate,
        "auth_required": has_auth,
        "output_buffer_size": terms.output_buffer_bytes,
        "output_buffer_timeout": terms.output_buffer_timeout_ns // MS_NS,
    }
    return orjson.dumps(answer), Upgrade(has_tls and request.tls_v1, snappy, max(level, 0) if deflate else None)


def _invalid(what: str, value: int) -> ClientError:
    return ClientError("E_BAD_BODY", f"IDENTIFY {what} ({value}) is invalid")
