"""The options of the section nsq, with the names and defaults of nsqd's command line."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.option_kinds import (
    HOUR,
    MAX_BODY,
    MINUTE,
    MS,
    SECOND,
    YEAR,
    Choice,
    Duration,
    File,
    Flag,
    Kind,
    Number,
    Text,
    TextList,
    is_address,
    is_host,
    is_url_or_address,
)

EPHEMERAL: Final = "#ephemeral"  # ends the name of a topic or channel that is deleted with its last consumer
# Internal channels of Pulsar topics, for compaction and retention, which no client may consume: COMPACTION_NAME and
# RETENTION_NAME in csrc/ringbuf/message.h.
HIDDEN: Final = ("__compaction", "__retention")
NSQD_VERSION: Final = "1.3.0"  # the nsqd whose behaviour this is; tools look at it
HOST_NAME: Final = socket.gethostname()
HOST_NODE_ID: Final = -1  # stands for node_id(HOST_NAME)


def node_id(host_name: str) -> int:
    """The node id that nsqd chooses on a host of this name."""
    import hashlib  # slow to load, and only the gateway needs it

    return zlib.crc32(hashlib.md5(host_name.encode(), usedforsecurity=False).digest()) % 1024


OPTIONS: Final[Mapping[str, Kind]] = {
    "msg-timeout": Duration(MINUTE, MS, YEAR, "a message not finished within it is delivered again"),
    "max-msg-timeout": Duration(15 * MINUTE, MS, YEAR, "the longest msg_timeout of a client, touches included"),
    "max-msg-size": Number(1 << 20, 1, MAX_BODY, "bytes of the largest message"),
    "max-body-size": Number(5 << 20, 1, MAX_BODY, "bytes of the largest body of a command"),
    "max-req-timeout": Duration(HOUR, 0, YEAR, "the longest delay of a REQ or DPUB"),
    "client-timeout": Duration(
        MINUTE,
        10 * MS,
        YEAR,
        "a client that is silent for so long is cut off, if it names no heartbeat: the usual one is half of it",
    ),
    "max-heartbeat-interval": Duration(MINUTE, SECOND, YEAR, "the longest heartbeat_interval of a client"),
    "max-rdy-count": Number(2500, 1, (1 << 31) - 1, "messages a client may have in flight"),
    "max-output-buffer-size": Number(
        64 << 10, 64, 1 << 20, "bytes of the largest output_buffer_size of a client", clamped=True
    ),
    "max-output-buffer-timeout": Duration(30 * SECOND, MS, YEAR, "the longest output_buffer_timeout of a client"),
    "min-output-buffer-timeout": Duration(25 * MS, MS, YEAR, "the shortest output_buffer_timeout of a client"),
    "output-buffer-timeout": Duration(250 * MS, MS, YEAR, "the output_buffer_timeout of a client that names none"),
    "max-channel-consumers": Number(0, 0, 1 << 20, "consumers of one channel; 0: any number"),
    "tls-cert": File("the certificate shown to clients (PEM)"),
    "tls-key": File("its key (PEM)"),
    "tls-client-auth-policy": Choice(
        "", ("", "require", "require-verify"), "whether clients must show a certificate; implies tls-required"
    ),
    "tls-root-ca-file": File("what certificates of clients and of the auth server are verified with (PEM)"),
    "tls-required": Choice(
        "false",
        ("false", "true", "tcp-https"),
        "whether clients must encrypt; tcp-https: except on nsq-http://",
        {"1": "true", "t": "true", "0": "false", "f": "false"},
    ),
    "tls-min-version": Choice(
        "tls1.0", ("tls1.0", "tls1.1", "tls1.2", "tls1.3"), "the oldest TLS accepted", {"": "tls1.0"}
    ),
    "deflate": Flag(True, "whether clients may ask for deflate"),
    "max-deflate-level": Number(6, 1, 9, "the highest deflate_level of a client"),
    "snappy": Flag(True, "whether clients may ask for snappy"),
    "auth-http-address": TextList("auth servers; with one, clients must AUTH", "HOST:PORT or a URL", is_url_or_address),
    "lookupd-tcp-address": TextList("nsqlookupds to register topics and channels with", "HOST:PORT", is_address),
    "broadcast-address": Text(
        HOST_NAME, "the host that nsqlookupd tells consumers", "a host", is_host, "this host's name"
    ),
    "broadcast-tcp-port": Number(0, 0, 65535, "the TCP port it tells them; 0: the one listened on"),
    "broadcast-http-port": Number(0, 0, 65535, "the HTTP port it tells them; 0: the one listened on"),
    "node-id": Number(
        HOST_NODE_ID,
        0,
        1023,
        "shown by /config/id only: message ids are unique without it",
        shown_default="by this host's name",
    ),
    "http-client-connect-timeout": Duration(2 * SECOND, MS, HOUR, "to connect to an auth server"),
    "http-client-request-timeout": Duration(5 * SECOND, MS, HOUR, "for the answer of an auth server"),
    "statsd-address": Text("", "where figures are sent to, by UDP", "HOST:PORT", is_address),
    "statsd-prefix": Text("nsq.%s", "before the names of figures; %s: broadcast address and HTTP port"),
    "statsd-interval": Duration(MINUTE, 10 * MS, YEAR, "between two reports"),
    "statsd-mem-stats": Flag(True, "whether figures of memory are sent too"),
    "statsd-udp-packet-size": Number(508, 64, 65507, "bytes of the largest datagram"),
    "statsd-exclude-ephemeral": Flag(False, "whether #ephemeral topics and channels are left out"),
}

_TIMERS: Final = "every message has a timer of its own, there is no scan to tune"
_LATENCIES: Final = "latencies from publish to finish are not computed"
# nsqd options that make no sense here, and what to do instead.
INSTEAD: Final[Mapping[str, str]] = {
    "data-path": "use --data-dir",
    "mem-queue-size": "no message is in memory only, unless all are (--memory)",
    "max-bytes-per-file": "a log segment has 64 MiB",
    "sync-every": "use --sync and log.sync-interval",
    "sync-timeout": "use --sync and log.sync-interval",
    "queue-scan-worker-pool-max": _TIMERS,
    "queue-scan-selection-count": _TIMERS,
    "e2e-processing-latency-percentile": _LATENCIES,
    "e2e-processing-latency-percentiles": _LATENCIES,
    "e2e-processing-latency-window-time": _LATENCIES,
    "tcp-address": "use --listen nsq://HOST:PORT",
    "http-address": "use --listen nsq-http://HOST:PORT",
    "https-address": "use --listen nsq-https://HOST:PORT, and tls.cert",
    "log-level": "use --log-level",
    "log-prefix": "every line names its process",
    "verbose": "use --log-level debug",
    "worker-id": "use node-id",
    "config": "use --config, with these options under [nsq]",
    # Names in nsqd's configuration file that differ from the command line's by more than _ for -.
    "id": "use node-id",
    "nsqlookupd-tcp-addresses": "use lookupd-tcp-address",
    "auth-http-addresses": "use auth-http-address",
}


def is_tls_required(settings: Mapping[str, Any]) -> bool:
    """Whether clients of the TCP protocol must encrypt."""
    return settings["tls-required"] != "false" or bool(settings["tls-client-auth-policy"])


def is_http_forbidden(settings: Mapping[str, Any]) -> bool:
    """Whether unencrypted HTTP is refused."""
    required = settings["tls-required"]
    return required == "true" or (required == "false" and bool(settings["tls-client-auth-policy"]))
