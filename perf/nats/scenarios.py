"""Scenarios of the NATS protocol, beside the real nats-server. See perf/scenarios.py for how products are compared.

Core NATS keeps nothing, so there is no disk in it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from perf import load
from perf.brokers import MEMORY, Broker, MqShards, Product, free_port
from perf.figures import Figures
from perf.nats import generator
from perf.nats.peer import NatsServer
from perf.scenarios import (
    LATENCY_UNITS,
    MESSAGE_UNITS,
    Measurement,
    Plan,
    Scenario,
    Units,
    half_of_the_highest,
    in_turn,
    measured,
    message_latency,
    once_each,
    window,
    without_limit,
)

ROUTE_SUBJECTS: Final = 100_000
PACED_WINDOW: Final = 100_000  # messages: publishers wait only if the broker is far behind

REQUEST_UNITS: Final[Units] = {
    **MESSAGE_UNITS,
    "request_p50": ("us", "lower", True),
    "request_p99": ("us", "lower", False),
}
# Ratios to nats-server, and to the bare server.
TARGETS: Final[Mapping[str, float]] = {"rate": 2.0, "cpu_us_per_message": 0.5}
LIMIT_TARGETS: Final[Mapping[str, float]] = {"cpu_us_per_message": 2.0}


def _request_latency(result: generator.Nats) -> dict[str, float]:
    if result.latency is None:
        return {}
    return {"request_p50": result.latency.p50, "request_p99": result.latency.p99}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Puts load on one broker for a time."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    is_request: bool = False

    def measure(self, plan: Plan) -> Figures:
        def once(product: Product) -> Measurement:
            with Broker(product, MEMORY, plan.base) as broker:
                result = generator.run(broker.port, (*self.arguments, *window(plan)), broker.pids())
            return measured(plan, product, result) | (_request_latency(result) if self.is_request else {})

        units = REQUEST_UNITS if self.is_request else MESSAGE_UNITS
        return in_turn(plan, self.name, self.variant, once, units, TARGETS, LIMIT_TARGETS)


@dataclass(frozen=True, slots=True)
class Latency:
    """Measures the time from when a message is due to be published to its delivery. The rate is half of the highest
    that the last product reaches with the same connections in a closed loop."""

    name: str
    variant: str
    arguments: tuple[str, ...]

    def measure(self, plan: Plan) -> Figures:
        arguments = (*self.arguments, *window(plan))

        def unpaced(product: Product) -> generator.Nats:
            with Broker(product, MEMORY, plan.base) as broker:
                return generator.run(broker.port, arguments, broker.pids())

        rate = half_of_the_highest(plan, self.name, self.variant, unpaced)
        paced = (*arguments, "--rate", str(rate), "--window", str(PACED_WINDOW))

        def once(product: Product) -> Measurement:
            with Broker(product, MEMORY, plan.base) as broker:
                result = generator.run(broker.port, paced, broker.pids())
            return measured(plan, product, result) | message_latency(plan, result.latency)

        return in_turn(plan, self.name, self.variant, once, LATENCY_UNITS, {"message_p99": 1.0})


@dataclass(frozen=True, slots=True)
class Routed:
    """Loads a cluster of two servers: publishers at one, subscribers at the other. The CPU time is that of both."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    is_request: bool = False
    compression: str = ""
    is_encrypted: bool = False

    def measure(self, plan: Plan) -> Figures:
        def once(product: Product) -> Measurement:
            with self._cluster(plan, product) as (first, second):
                other = ("--subscribe-port", str(second.port))
                pids = first.pids() + second.pids()
                result = generator.run(first.port, (*self.arguments, *other, *window(plan)), pids)
            return measured(plan, product, result) | (_request_latency(result) if self.is_request else {})

        units = REQUEST_UNITS if self.is_request else MESSAGE_UNITS
        return in_turn(without_limit(plan), self.name, self.variant, once, units, TARGETS)

    @contextlib.contextmanager
    def _cluster(self, plan: Plan, product: Product) -> Iterator[tuple[Broker, Broker]]:
        port = free_port()
        with tempfile.TemporaryDirectory(dir=plan.base) as directory:
            block = f"compression: {self.compression}\n" if self.compression else ""
            block += _certified(Path(directory)) if self.is_encrypted else ""

            def server(port: int, *routes: int) -> Product:
                if not block:
                    return in_cluster(product, port, routes)
                path = Path(directory) / f"{port}.conf"
                path.write_text(_conf(port, routes, block))
                return by_conf(product, path)

            with (
                Broker(server(port), MEMORY, plan.base) as first,
                Broker(server(free_port(), port), MEMORY, plan.base) as second,
            ):
                wait_for_route(first.port, second.port)
                yield first, second


def _conf(port: int, routes: Sequence[int], block: str) -> str:
    urls = ", ".join(f'"nats-route://127.0.0.1:{other}"' for other in routes)
    return f'cluster {{\nname: perf\nlisten: "127.0.0.1:{port}"\nroutes: [{urls}]\n{block}}}\n'


def by_conf(product: Product, path: Path) -> Product:
    """Adds a configuration file of nats-server's format to a product."""
    if isinstance(product, NatsServer):
        return replace(product, more=(*product.more, "-c", str(path)))
    assert isinstance(product, MqShards)
    return replace(product, more=(*product.more, "--nats-config", str(path)))


def _certified(directory: Path) -> str:
    """Makes a self-signed certificate for both servers, and returns the block that names it."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    made = "openssl req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=localhost"
    names = ("-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([*made.split(), *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}" }}\n'


def in_cluster(product: Product, port: int, routes: Sequence[int] = ()) -> Product:
    """Adds a listener for routes, and routes to those ports, to a product."""
    own, others = f"nats-route://127.0.0.1:{port}", [f"nats-route://127.0.0.1:{other}" for other in routes]
    if isinstance(product, NatsServer):
        more = ("--cluster", own, "--cluster_name", "perf", *(("--routes", ",".join(others)) if others else ()))
        return replace(product, more=product.more + more)
    assert isinstance(product, MqShards)
    settings = ("nats.cluster-name=perf", *(f"nats.routes={other}" for other in others))
    more = ("--listen", own, *(word for setting in settings for word in ("--set", setting)))
    return replace(product, more=product.more + more)


def wait_for_route(first: int, second: int) -> None:
    """Waits until what is published at one server is delivered at the other."""
    with (
        socket.create_connection(("127.0.0.1", second)) as hears,
        socket.create_connection(("127.0.0.1", first)) as says,
    ):
        hears.sendall(b'CONNECT {"verbose":false}\r\nSUB probe 1\r\n')
        says.sendall(b'CONNECT {"verbose":false}\r\n')
        hears.settimeout(0.02)
        deadline = time.monotonic() + load.GRACE_S
        heard = b""
        while b"MSG probe" not in heard:
            if time.monotonic() > deadline:
                raise load.LoadError("the two servers do not find each other")
            says.sendall(b"PUB probe 0\r\n\r\n")
            with contextlib.suppress(TimeoutError):
                heard += hears.recv(4096)


def measure_interest(plan: Plan) -> Figures:
    """Measures how long a server takes to tell a new server of its subjects, and to take as many from it."""
    count = min(plan.subscriptions, ROUTE_SUBJECTS)

    def once(product: Product) -> Measurement:
        port = free_port()
        with (
            Broker(in_cluster(product, port), MEMORY, plan.base) as broker,
            generator.idle_connections(broker.port, 4, count),
        ):
            told, taken = _exchange_interest(port, count)
        plan.say(f"  {product.name:<12}{count} subjects told in {told:.3f} s, taken in {taken:.3f} s")
        return {"told": told, "taken": taken}

    units: Units = {"told": ("s", "lower", True), "taken": ("s", "lower", True)}
    return in_turn(without_limit(plan), "nats-route-interest", f"{count} subjects", once, units, {})


def _exchange_interest(port: int, count: int) -> tuple[float, float]:
    """Exchanges subjects, acting as a server without a pool."""
    name = "N" * 56
    who = {"server_id": name, "version": "2.9.0", "host": "127.0.0.1", "port": 1, "headers": True, "cluster": "perf"}
    connect = {"verbose": False, "headers": True, "name": name, "cluster": "perf"}
    lines = b"".join(b"RS+ $G other.%07d\r\n" % number for number in range(count))
    with socket.create_connection(("127.0.0.1", port)) as route:
        began = time.monotonic()
        route.sendall(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(who)}\r\n".encode())
        found, rest = 0, b""
        while found < count:
            data = route.recv(1 << 20)
            if not data:
                raise load.LoadError("the route was closed")
            lines_told, _, rest = (rest + data).rpartition(b"\n")
            found += lines_told.count(b"RS+ $G load.")
        told = time.monotonic() - began
        began = time.monotonic()
        route.sendall(lines + b"PING\r\n")
        heard = b""
        while b"PONG\r\n" not in heard:
            heard = heard[-8:] + route.recv(1 << 20)
        return told, time.monotonic() - began


def measure_connections(plan: Plan) -> Figures:
    """Measures what an idle connection costs in memory, without what the kernel keeps for its socket."""
    return _held(plan, "nats-connections", "held_per_connection", plan.connections, 0)


def measure_subscriptions(plan: Plan) -> Figures:
    """Measures what a subscription costs in memory, each to a subject of its own, on four connections."""
    return _held(plan, "nats-subscriptions", "held_per_subscription", 4, plan.subscriptions)


def _held(plan: Plan, name: str, metric: str, connections: int, subscriptions: int) -> Figures:
    def once(product: Product) -> Measurement:
        with Broker(product, MEMORY, plan.base) as broker:
            before = broker.memory()
            with generator.idle_connections(broker.port, connections, subscriptions):
                held = (broker.memory().held - before.held) / (subscriptions or connections)
        plan.say(f"  {product.name:<12}{held:8.1f} bytes")
        return {metric: held}

    return in_turn(once_each(plan), name, MEMORY.name, once, {metric: ("bytes", "lower", True)}, {})


BODY: Final = ("--body", "128")
ASK: Final = ("--mode", "request", *BODY)

LOADS: Final = (
    Traffic("nats-unwanted", "16 B", ("--mode", "publish", "--body", "16")),
    Traffic("nats-one-16", "16 B", ("--body", "16")),
    Traffic("nats-one-128", "128 B", BODY),
    Traffic("nats-one-4096", "4 KB", ("--body", "4096")),
    Traffic("nats-fan-out", "8 subscribers", ("--subscribers", "8", *BODY)),
    Traffic("nats-queue", "8 members", ("--subscribers", "8", "--queue", *BODY)),
    Traffic("nats-queue-100", "100 members", ("--subscribers", "100", "--queue", *BODY)),
    Traffic("nats-request", "1 client", ASK, is_request=True),
    Traffic("nats-request-many", "50 clients", (*ASK, "--publishers", "50"), is_request=True),
    Traffic("nats-subjects", "100,000 subjects", ("--subjects", "100000", *BODY)),
    Latency("nats-latency", "half of the highest rate", BODY),
)

ROUTED: Final = (
    Routed("nats-route-one-16", "16 B, over a route", ("--body", "16")),
    Routed("nats-route-one-128", "128 B, over a route", BODY),
    Routed("nats-route-one-4096", "4 KB, over a route", ("--body", "4096")),
    Routed("nats-route-s2", "128 B, over a route, compression: s2_fast", BODY, compression="s2_fast"),
    Routed("nats-route-tls", "128 B, over a route, encrypted", BODY, is_encrypted=True),
    Routed("nats-route-fan-out", "8 subscribers, over a route", ("--subscribers", "8", *BODY)),
    Routed("nats-route-request", "50 clients, over a route", (*ASK, "--publishers", "50"), is_request=True),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    **{each.name: each.measure for each in LOADS},
    **{each.name: each.measure for each in ROUTED},
    "nats-route-interest": measure_interest,
    "nats-connections": measure_connections,
    "nats-subscriptions": measure_subscriptions,
}
