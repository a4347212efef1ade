"""Subjects that are mapped to others in some clusters only."""

from __future__ import annotations

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, bodies, configured, mixtures
from tests.nats.wire import Wire
from tests.servers import START_SECONDS, wait_until

MAPPINGS = """
mappings {
  a: [{dest: here, weight: 100%, cluster: c}, {dest: there, weight: 100%, cluster: d}, {dest: else, weight: 100%}]
  b: [{dest: there, weight: 100%, cluster: d}, {dest: else, weight: 100%}]
  none: [{dest: there, weight: 100%, cluster: d}]
  lost: [{dest: lost, weight: 100%, cluster: d}]
  "w.*.*": {destination: "here.{{wildcard(2)}}.$1", weight: 100, cluster: c}
}
"""
# What each is published as in that cluster; "": nobody has it.
IN_C = {"a": "here", "b": "else", "none": "none", "lost": "", "w.1.2": "here.2.1"}
IN_D = {"a": "there", "b": "there", "none": "there", "lost": "lost", "w.1.2": "w.1.2"}
IN_NONE = {**IN_C, "a": "else", "w.1.2": "w.1.2"}


def conf(cluster: str) -> str:
    return f'port: $PORT, host: "127.0.0.1"\n{cluster}\n{MAPPINGS}'


def listen(name: str, routes: str = "") -> str:
    return f'cluster {{ {name} listen: "127.0.0.1:$ROUTE_PORT" {routes} }}'


def mapped(wire: Wire) -> dict[str, str]:
    """What a client hears of what it publishes: its own name for it, by subject."""
    found = dict.fromkeys(IN_C, "")
    wire.heard.data, wire.asked = b"", 0
    wire.send(b"".join(b"PUB %s %d\r\n%s\r\n" % (name.encode(), len(name), name.encode()) for name in IN_C))
    wire.barrier()
    subjects = [line.split()[1].decode() for line in wire.heard.data.split(b"\r\n") if line.startswith(b"MSG ")]
    for name, subject in zip((body.decode() for body in bodies(wire)), subjects, strict=True):
        found[name] = subject
    return found


@pytest.mark.parametrize("kinds", mixtures([NEW_REAL], [OURS], [OURS_3]))
@pytest.mark.parametrize(
    ("cluster", "wanted"),
    [(listen("name: c,"), IN_C), (listen("name: d,"), IN_D), ("", IN_NONE)],
    ids=["c", "d", "none"],
)
def test_destinations_are_those_of_the_cluster(kinds: tuple[str], cluster: str, wanted: dict[str, str]) -> None:
    with configured(kinds[0], conf(cluster)) as member:
        wire = member.client(b"SUB > 1\r\n")
        assert mapped(wire) == wanted
        wire.close()


def test_a_server_that_takes_the_name_of_a_cluster_maps_as_there() -> None:
    with configured(OURS, conf(listen("name: c,"))) as one:
        routes = f", routes: [{one.route_url}]"
        with configured(OURS_3, conf(listen("", routes))) as other:
            wires = [other.client(b"SUB > 1\r\n") for _ in range(6)]
            for wire in wires:
                wait_until(lambda wire=wire: mapped(wire) == IN_C, "it is of that cluster", START_SECONDS)
                wire.close()
