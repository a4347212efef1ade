"""Connections of leaf nodes that are compressed, as nats-server does it: agreed upon by INFO before CONNECT."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, configured, mixtures, settled
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import line
from tests.nats.s2 import IDENTIFIER_CHUNK, S2
from tests.nats.test_leaves import HUB, LEAF, ask, client, joined
from tests.nsq.certificates import make
from tests.servers import free_port, wait_until

# What each side says, and what becomes of it here and there.
MODES: dict[str, tuple[str, str, str, str]] = {
    "as both are": ("", "", "s2_uncompressed", "s2_uncompressed"),
    "as one wants": ("accept", "s2_fast", "s2_fast", "s2_fast"),
    "each its own": ("s2_best", "s2_better", "s2_best", "s2_better"),
    "not by the hub": ("off", "s2_fast", "off", "off"),
    "not by the leaf node": ("s2_fast", "off", "off", "off"),
    "by nobody": ("accept", "accept", "off", "off"),
    "always, by time": ("{mode: s2_auto, rtt_thresholds: [0s, 1h]}", "s2_fast", "s2_fast", "s2_fast"),
}
KINDS = mixtures((OURS_3, NEW_REAL), (NEW_REAL, OURS_3), (OURS, OURS), (NEW_REAL, NEW_REAL))


@contextlib.contextmanager
def connected(kinds: tuple[str, ...], modes: tuple[str, str]) -> Iterator[tuple[list[Member], list[int]]]:
    """A hub and a leaf node, and where they are monitored."""
    ports = [free_port(), free_port()]
    said = [f"compression: {mode}" if mode else "" for mode in modes]
    hub_text = (HUB % {"http": ports[0]}).replace("leafnodes {", "leafnodes { " + said[0])
    with configured(kinds[0], hub_text) as hub:
        text = LEAF % {"name": "leafy", "user": "a", "port": hub.route_port} + f'http: "127.0.0.1:{ports[1]}"\n'
        with configured(kinds[1], text.replace("url:", f"{said[1]}, url:" if said[1] else "url:")) as leaf:
            yield [hub, leaf], ports


def everything_passes(members: list[Member]) -> None:
    """What can be compressed, what cannot, and what is of many chunks."""
    near, far = client(members[0], b"SUB x 1\r\n", "ca"), client(members[1], b"SUB x 1\r\n")
    joined(near, far)
    drawn = random.Random(1)
    said = [b"a" * 200_000, drawn.randbytes(200_000).replace(b"\r", b"-"), *(b"%d" % n for n in range(500))]
    for wire in (near, far):
        wire.send(b"".join(b"PUB x %d\r\n%s\r\n" % (len(body), body) for body in said))
    settled(members, (near, far), 4 * len(said))
    for wire in (near, far):
        assert sorted(bodies(wire)) == sorted(2 * said)
        wire.close()


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("how", MODES)
def test_it_is_compressed_as_both_sides_want(kinds: tuple[str, ...], how: str) -> None:
    *modes, here, there = MODES[how]
    with connected(kinds, (modes[0], modes[1])) as (members, ports):
        everything_passes(members)
        for port, wanted in zip(ports, (here, there), strict=True):
            (row,) = ask(port, "/leafz")["leafs"]
            # A busy machine may take its time.
            assert row["compression"] == wanted or (how == "as both are" and row["compression"].startswith("s2_"))


@pytest.mark.parametrize("kinds", mixtures((OLD_REAL, OURS), (OURS, OLD_REAL)))
def test_with_a_server_that_knows_no_compression_there_is_none(kinds: tuple[str, ...]) -> None:
    ours = ["", "s2_fast"] if kinds[1] == OURS else ["s2_fast", ""]
    with connected(kinds, (ours[0], ours[1])) as (members, ports):
        everything_passes(members)
        (row,) = ask(ports[kinds.index(OURS)], "/leafz")["leafs"]
        assert row["compression"] == "not supported"


@pytest.mark.parametrize("kinds", mixtures((OURS,), (NEW_REAL,)))
def test_who_says_a_mode_that_is_none_is_told_so(kinds: tuple[str]) -> None:
    with configured(kinds[0], HUB % {"http": free_port()}) as hub:
        wire = LeafWire(hub.route_port)
        assert wire.info["compression"] == "s2_auto"
        wire.send(line("INFO", {"compression": "zip"}))
        assert wire.rest() == b"-ERR 'unsupported route compression mode \"zip\"'\r\n"
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,)))
def test_what_is_no_stream_of_s2_ends_the_connection_and_is_said(kinds: tuple[str]) -> None:
    with configured(kinds[0], HUB % {"http": free_port()}) as hub:
        for said in (b"CONNECT {}\r\n", IDENTIFIER_CHUNK + b"\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"):
            wire = LeafWire(hub.route_port)
            wire.send(line("INFO", {"compression": "s2_fast"}))
            wire.send(said)
            wire.rest()
            wire.close()
        wait_until(lambda: "no stream of S2" in hub.said(), "it is said")
        # Others are served.
        good = LeafWire(hub.route_port)
        good.send(line("INFO", {"compression": "s2_fast"}))
        who = {"user": "a", "pass": "a", "name": "good", "cluster": "good", "remote_account": "$G"}
        good.send(S2().encode(line("CONNECT", who)))
        wait_until(lambda: "there is a leaf node of account A" in hub.said(), "it has joined")
        good.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (NEW_REAL, OURS_3), (OURS_3, OURS)))
def test_what_is_encrypted_is_compressed_too(kinds: tuple[str, ...], tmp_path: Path) -> None:
    files = make(tmp_path)
    hub_tls = f'tls {{ cert_file: "{files.server.cert}", key_file: "{files.server.key}" }}'
    leaf_tls = f'tls {{ ca_file: "{files.authority}" }}'
    with connected(kinds, (f"s2_fast, {hub_tls}", f"s2_better, {leaf_tls}")) as (members, ports):
        everything_passes(members)
        assert [ask(port, "/leafz")["leafs"][0]["compression"] for port in ports] == ["s2_fast", "s2_better"]
