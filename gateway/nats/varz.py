"""/varz: what the server is, its options, and its figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mq_shards.acceptor import certificate_times, named_files
from mq_shards.acceptor.protocols.nats import write_timeout
from mq_shards.acceptor.protocols.nats.client import FEATURE_FLAGS
from mq_shards.acceptor.protocols.nats.websocket_options import ANY_ORIGIN, OPTIONS
from mq_shards.gateway.nats.go_values import instant, uptime, written
from mq_shards.gateway.processes import broker_pids, processes, taken_bytes
from mq_shards.ringbuf.time_units import SECOND_NS

Row = dict[str, Any]
Settings = Mapping[str, Any]


class Usage:
    """Memory and CPU use of all processes of the broker; the CPU use is that since the last look."""

    def __init__(self, supervisor: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._supervisor = supervisor
        self._now_ns = now_ns
        self._before = self._look()[0], now_ns()

    def _look(self) -> tuple[float, int]:
        taken = sum(taken_bytes(pid) for pid in broker_pids(self._supervisor))
        return sum(one.cpu_s for one in processes(self._supervisor)), taken

    def now(self) -> tuple[float, int]:
        """CPU use in per cent of one core, and memory in bytes."""
        cpu_s, taken = self._look()
        (before_s, before_ns), now_ns = self._before, self._now_ns()
        self._before = cpu_s, now_ns
        passed_s = (now_ns - before_ns) / SECOND_NS
        return (round(max(0.0, cpu_s - before_s) / passed_s * 100, 1) if passed_s > 0 else 0.0), taken


class Counted(NamedTuple):
    """The counters of each kind of connection."""

    clients: Mapping[str, int]
    routes: Mapping[str, int]
    leafs: Mapping[str, int]


class Served(NamedTuple):
    """What /varz shows besides what acceptors say."""

    started_ns: int
    loaded_ns: int  # when the options were last read
    now_ns: int
    http: tuple[str, int, int]  # where monitoring is served: host, port, port of https
    requests: Mapping[str, int]  # how many so far, by path


def varz(
    server: Mapping[str, Any], settings: Settings, counted: Counted, usage: tuple[float, int], served: Served
) -> Row:
    """Makes the answer. `server`: the result of Acceptors.server(); `usage`: of now()."""
    cores = len(os.sched_getaffinity(0))
    row: Row = {
        **_configured(server, settings, served.http),
        "start": instant(served.started_ns),
        "now": instant(served.now_ns),
        "uptime": uptime(served.now_ns - served.started_ns),
        "mem": usage[1],
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": usage[0],
        **_counted(server, counted),
        "http_req_stats": dict(sorted(served.requests.items())),
        "config_load_time": instant(served.loaded_ns),
        "config_digest": server["config_digest"],
        **{name: server[name] for name in ("tags", "metadata") if name in server},
        "feature_flags": FEATURE_FLAGS,
        **({"system_account": server["system_account"]} if server["system_account"] else {}),
        **_by_kind("slow_consumer_stats", *(of["slow-consumers"] for of in counted)),
        **_by_kind("stale_connection_stats", counted.clients["stale-connections"]),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
    return {name: written(value) for name, value in row.items()}


def _configured(server: Mapping[str, Any], settings: Settings, http: tuple[str, int, int]) -> Row:
    limits = {"max_subscriptions": settings["max-subscriptions"]} if settings["max-subscriptions"] else {}
    return {
        **{name: server[name] for name in ("server_id", "server_name", "version", "proto", "go", "host", "port")},
        **{name: True for name in ("auth_required", "tls_required", "tls_verify") if server.get(name)},
        **({"connect_urls": server["connect_urls"]} if server.get("connect_urls") else {}),
        "max_connections": settings["max-connections"],
        **limits,
        "ping_interval": settings["ping-interval"],
        "ping_max": settings["ping-max"],
        "http_host": http[0],
        "http_port": http[1],
        "http_base_path": settings["http-base-path"],
        "https_port": http[2],
        "auth_timeout": settings["auth-timeout"] / SECOND_NS,
        "max_control_line": settings["max-control-line"],
        "max_payload": settings["max-payload"],
        "max_pending": settings["max-pending"],
        "cluster": _with_end(server.get("cluster_options") or _cluster(server), settings, "cluster-tls-cert-file"),
        **{name: {} for name in ("gateway", "mqtt")},
        "leaf": _with_end(server.get("leaf_options", {}), settings, "leaf-tls-cert-file"),
        "websocket": _with_end(_websocket(server, settings), settings, "websocket-tls-cert-file"),
        "jetstream": {},
        "tls_timeout": settings["tls-timeout"] / SECOND_NS,
        "write_deadline": settings["write-deadline"],
        **write_timeout.shown(settings["write-timeout"]),
        **_end_of(settings["tls-cert-file"]),
    }


def _end_of(path: str) -> Row:
    """When the certificate in that file ends."""
    try:
        end_s = certificate_times.ends_s(named_files.read(path)) if path else None
    except OSError:
        end_s = None
    return {} if end_s is None else {"tls_cert_not_after": instant(int(end_s) * SECOND_NS)}


def _with_end(shown: Row, settings: Settings, option: str) -> Row:
    """Adds it to a block of what is listened for."""
    return {**shown, **_end_of(settings[option])} if shown else shown


def _websocket(server: Mapping[str, Any], settings: Settings) -> Row:
    host, port = server.get("websocket") or ("", 0)
    if not port:
        return {}
    handshake_ns = settings["websocket-handshake-timeout"]
    found = {
        "host": host,
        "port": port,
        "advertise": settings["websocket-advertise"],
        "no_auth_user": settings["websocket-no-auth-user"],
        "jwt_cookie": settings["websocket-jwt-cookie"],
        "handshake_timeout": handshake_ns if handshake_ns != OPTIONS["websocket-handshake-timeout"].default else 0,
        "auth_timeout": settings["websocket-auth-timeout"] / SECOND_NS,
        "no_tls": not settings["websocket-tls-cert-file"] or settings["websocket-allow-non-tls"],
        "tls_map": settings["websocket-tls-verify-and-map"],
        "tls_pinned_certs": settings["websocket-tls-pinned-certs"],
        "same_origin": settings["websocket-same-origin"],
        "allowed_origins": [one for one in settings["websocket-allowed-origins"] if one != ANY_ORIGIN],
        "compression": settings["websocket-compression"],
    }
    return {name: value for name, value in found.items() if value}


def _counted(server: Mapping[str, Any], counted: Counted) -> Row:
    clients = counted.clients
    found: Row = {
        "connections": clients["connections"],
        "total_connections": clients["total-connections"],
        "routes": server.get("routes", 0),
        "remotes": server.get("remotes", 0),
        "leafnodes": len(server.get("leaf_list", ())),
    }
    for way in ("in", "out"):
        for what, name in (("msgs", f"{way}-messages"), ("bytes", f"{way}-bytes")):
            found[f"{way}_{what}"] = sum(of[name] for of in counted)
            found[f"{way}_client_{what}"] = clients[name]
    return {
        **found,
        "slow_consumers": sum(of["slow-consumers"] for of in counted),
        "stale_connections": clients["stale-connections"],
        "stalled_clients": 0,
        "subscriptions": clients["subscriptions"],
    }


def _cluster(server: Mapping[str, Any]) -> Row:
    """Of a server without routes: a leaf node without a cluster tells clients its own name, which is not shown."""
    return {"name": server["cluster"]} if server["cluster"] not in ("", server["server_name"]) else {}


def _by_kind(name: str, clients: int, routes: int = 0, leafs: int = 0) -> Row:
    return {name: {"clients": clients, "routes": routes, "gateways": 0, "leafs": leafs}}
