"""The options of the sections: the one place where their limits and defaults stand; --help is made from them.

Those of `nsq` have the names and defaults of nsqd's command line.
"""

from __future__ import annotations

import hashlib
import socket
import zlib
from collections.abc import Mapping
from typing import Final

from mq_shards.supervisor.options.kinds import (
    HOUR,
    MINUTE,
    MS,
    SECOND,
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

YEAR: Final = 8760 * HOUR
# What one body may have at most, in every protocol: MAX_BODY_BYTES in csrc/acceptor/bounds.h.
MAX_BODY: Final = 1 << 30
HOST_NAME: Final = socket.gethostname()


def node_id(host_name: str) -> int:
    """The number that nsqd gives itself on a host of this name."""
    return zlib.crc32(hashlib.md5(host_name.encode(), usedforsecurity=False).digest()) % 1024


BEANSTALK: Final[Mapping[str, Kind]] = {
    # beanstalkd -z has this default and this maximum, and lowers what is above it with a warning.
    "max-job-size": Number(65535, 0, MAX_BODY, "bytes of the largest job body", clamped=True),
}

NSQ: Final[Mapping[str, Kind]] = {
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
    "node-id": Number(node_id(HOST_NAME), 0, 1023, "shown by /config/id only: message ids are unique without it"),
    "http-client-connect-timeout": Duration(2 * SECOND, MS, HOUR, "to connect to an auth server"),
    "http-client-request-timeout": Duration(5 * SECOND, MS, HOUR, "for the answer of an auth server"),
    "statsd-address": Text("", "where figures are sent to, by UDP", "HOST:PORT", is_address),
    "statsd-prefix": Text("nsq.%s", "before the names of figures; %s: broadcast address and HTTP port"),
    "statsd-interval": Duration(MINUTE, 10 * MS, YEAR, "between two reports"),
    "statsd-mem-stats": Flag(True, "whether figures of memory are sent too"),
    "statsd-udp-packet-size": Number(508, 64, 65507, "bytes of the largest datagram"),
    "statsd-exclude-ephemeral": Flag(False, "whether #ephemeral topics and channels are left out"),
}

LOG: Final[Mapping[str, Kind]] = {
    "sync-interval": Number(50, 1, 60_000, "milliseconds between syncs with --sync interval"),
    "retention-hours": Number(24, 0, 87_600, "hours for which finished messages stay readable"),
    "retention-bytes": Number(1 << 30, 0, 1 << 50, "bytes of finished messages kept, per shard"),
    "reader-bytes": Number(4 << 30, 0, 1 << 50, "bytes kept for named readers that have not read them, per shard"),
}

HTTP: Final[Mapping[str, Kind]] = {
    "staged-bytes": Number(16 << 30, 0, 1 << 50, "bytes of messages that are staged and not published yet, in all"),
}

BROKER: Final[Mapping[str, Kind]] = {
    "ring-bytes": Number(
        4 << 20, 64 << 10, 1 << 30, "bytes of each ring (two per acceptor and worker)", power_of_two=True
    ),
    "worker-spin-us": Number(100, 0, 1_000_000, "microseconds a worker looks for requests before it sleeps"),
    "acceptor-spin-us": Number(5, 0, 1_000_000, "microseconds an acceptor looks for replies before it sleeps"),
    "stop-timeout": Duration(MINUTE, 10 * MS, HOUR, "a stop takes no longer: what is left then is killed"),
    "max-connections": Number(65536, 1, 65536, "connections of each acceptor"),  # MAX_CONNECTIONS, bounds.h
}

SECTIONS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "beanstalk": BEANSTALK,
    "nsq": NSQ,
    "log": LOG,
    "http": HTTP,
    "broker": BROKER,
}

_TIMERS: Final = "every message has a timer of its own, there is no scan to tune"
_LATENCIES: Final = "latencies from publish to finish are not computed"
# Options of the servers that are replaced here which make no sense, and what to do instead.
INSTEAD: Final[Mapping[str, Mapping[str, str]]] = {
    "beanstalk": {},
    "nsq": {
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
        "https-address": "put a proxy that ends TLS before nsq-http://",
        "log-level": "use --log-level",
        "log-prefix": "every line names its process",
        "verbose": "use --log-level debug",
        "worker-id": "use node-id",
        "config": "use --config, with these options under [nsq]",
        # As nsqd's configuration file has them, if they are not only written with _ for -.
        "id": "use node-id",
        "nsqlookupd-tcp-addresses": "use lookupd-tcp-address",
        "auth-http-addresses": "use auth-http-address",
    },
    "log": {},
    "http": {},
    "broker": {},
}
