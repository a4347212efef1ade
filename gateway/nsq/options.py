"""The options of the section nsq, as the gateway needs them, and what else the supervisor tells it at the start."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.protocols.nsq.options import HOST_NODE_ID, is_http_forbidden, node_id
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.control import Message

# The names of options in /config, where they are not the flag's name with underscores.
_CONFIG_NAMES: Final = {
    "lookupd-tcp-address": "nsqlookupd_tcp_addresses",
    "auth-http-address": "auth_http_addresses",
    "node-id": "id",
}
_LATENCY_WINDOW_NS: Final = 600_000_000_000  # nsqd's default; this broker measures no latencies
_TLS_REQUIRED: Final = {"false": 0, "tcp-https": 1, "true": 2}
_TLS_VERSIONS: Final = {"tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303, "tls1.3": 0x304}


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    nsq: Mapping[str, Any]
    hostname: str
    tcp_addresses: Sequence[tuple[str, int]]
    http_addresses: Sequence[tuple[str, int]]
    started_wall_ns: int
    data_dir: bool  # messages are kept on disk
    data_path: str = ""
    sync: str = "interval"
    sync_interval_ns: int = 0
    https_addresses: Sequence[tuple[str, int]] = ()

    @classmethod
    def from_start(cls, start: Message) -> GatewayOptions:
        def addresses(protocol: str) -> list[tuple[str, int]]:
            return [
                (one["host"], one["port"]) for one in start["addresses"] if one["protocol"] == protocol and one["port"]
            ]

        return cls(
            nsq=start["settings"]["nsq"],
            hostname=socket.gethostname(),
            tcp_addresses=addresses("nsq"),
            http_addresses=addresses("nsq-http"),
            https_addresses=addresses("nsq-https"),
            started_wall_ns=start["started_wall_ns"],
            data_dir=start["data_dir"] is not None,
            data_path=start["data_dir"] or "",
            sync=start["sync"],
            sync_interval_ns=start["settings"]["log"]["sync-interval"] * 1_000_000,
        )

    @property
    def tcp_port(self) -> int:
        return self.tcp_addresses[0][1] if self.tcp_addresses else 0

    @property
    def http_port(self) -> int:
        return self.http_addresses[0][1] if self.http_addresses else 0

    @property
    def https_port(self) -> int:
        return self.https_addresses[0][1] if self.https_addresses else 0

    @property
    def broadcast_address(self) -> str:
        return str(self.nsq["broadcast-address"])

    @property
    def broadcast_tcp_port(self) -> int:
        return int(self.nsq["broadcast-tcp-port"]) or self.tcp_port

    @property
    def broadcast_http_port(self) -> int:
        return int(self.nsq["broadcast-http-port"]) or self.http_port

    @property
    def http_forbidden(self) -> bool:
        """Whether tls-required forbids unencrypted HTTP."""
        return is_http_forbidden(self.nsq)

    @property
    def _tls_required(self) -> int:
        """As nsqd's number: 0: no; 1: except over HTTP; 2: yes, which a policy for client certificates implies."""
        required = _TLS_REQUIRED[self.nsq["tls-required"]]
        return 2 if required == 0 and self.nsq["tls-client-auth-policy"] else required

    def config(self) -> dict[str, Any]:
        """The options as /config shows them, by their names there."""
        found = {_CONFIG_NAMES.get(name, name.replace("-", "_")): value for name, value in self.nsq.items()}
        del found["client_timeout"]  # nsqd has no such flag
        if found["id"] == HOST_NODE_ID:
            found["id"] = node_id(self.hostname)
        found["tls_required"] = self._tls_required
        found["tls_min_version"] = _TLS_VERSIONS[self.nsq["tls-min-version"]]
        found["broadcast_tcp_port"] = self.broadcast_tcp_port
        found["broadcast_http_port"] = self.broadcast_http_port
        found["statsd_prefix"] = self.statsd_prefix
        # Options that only nsqd has: with the values that an nsqd would show if it behaved as this broker does.
        found["https_address"] = _address(self.https_addresses)
        found["data_path"] = self.data_path
        found["mem_queue_size"] = 0
        found["max_bytes_per_file"] = int(lib.SEGMENT_BYTES)
        found["sync_every"] = 1 if self.sync == "always" else 0
        found["sync_timeout"] = self.sync_interval_ns if self.sync == "interval" else 0
        found["queue_scan_selection_count"] = found["queue_scan_worker_pool_max"] = 0
        found["e2e_processing_latency_window_time"] = _LATENCY_WINDOW_NS
        found["e2e_processing_latency_percentiles"] = []
        found["log_prefix"] = ""
        found["tcp_address"] = _address(self.tcp_addresses)
        found["http_address"] = _address(self.http_addresses)
        return found

    @property
    def statsd_prefix(self) -> str:
        prefix: str = self.nsq["statsd-prefix"]
        if not prefix:
            return ""
        host = f"[{self.broadcast_address}]" if ":" in self.broadcast_address else self.broadcast_address
        key = f"{host}:{self.broadcast_http_port}".replace(".", "_").replace(":", "_")
        prefix = prefix.replace("%s", key)
        return prefix if prefix.endswith(".") else prefix + "."


def _address(addresses: Sequence[tuple[str, int]]) -> str:
    if not addresses:
        return ""
    host, port = addresses[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
