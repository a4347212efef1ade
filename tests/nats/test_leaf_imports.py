"""Streams that accounts import from one that is connected to a hub or a leaf node: each side tells the other what its
importing accounts want of the stream, and a queue group is one, in whichever of these accounts and on whichever side
its members are. Ours as the real ones."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, bodies, configured, mixtures, settled
from tests.nats.hub_wire import HubPort
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

# A exports; B and C import.
IMPORTS = {
    "B": 'imports: [{stream: {account: A, subject: "s.>"}, prefix: "p"}, '
    '{stream: {account: A, subject: "t.*.*"}, to: "x.$2.y.$1"}]',
    "C": 'imports: [{stream: {account: A, subject: "s.>"}}]',
}
COUNT = 40  # each of five members has some, but for once in a thousand times
NUMBERS = itertools.count()


def conf(side: str, imports: bool, leaves: str) -> str:
    def account(name: str) -> str:
        shares = 'exports: [{stream: "s.>"}, {stream: "t.*.*"}]' if name == "A" else imports and IMPORTS[name]
        return f"{name} {{ users: [{{user: {name.lower()}, password: {name.lower()}}}], {shares or ''} }}"

    accounts = "\n".join(account(name) for name in "ABC")
    return f'listen: "127.0.0.1:$PORT"\nserver_name: {side}\naccounts {{ {accounts} }}\nleafnodes {{ {leaves} }}\n'


def hub_conf(port: int, imports: bool = True) -> str:
    users = ", ".join(f"{{user: {name.lower()}, password: {name.lower()}, account: {name}}}" for name in "ABC")
    return conf("hub", imports, f'listen: "127.0.0.1:{port}", authorization {{ users: [{users}] }}')


def leaf_conf(port: int, accounts: str = "A", imports: bool = True) -> str:
    remotes = ", ".join(
        f'{{url: "nats-leaf://{name.lower()}:{name.lower()}@127.0.0.1:{port}", account: {name}, compression: off}}'
        for name in accounts
    )
    return conf("leaf", imports, f"remotes: [{remotes}]")


def come(member: Member, account: str, said: bytes = b"") -> Wire:
    wire = Wire(member.port)
    user = account.lower().encode()
    wire.send(b'CONNECT {"verbose":false,"user":"%s","pass":"%s"}\r\n' % (user, user) + said)
    wire.barrier()
    return wire


# --- what is told -----------------------------------------------------------------------------------------------------


def interest(peer: RouteWire, wire: Wire) -> list[bytes]:
    wire.barrier()
    return sorted(one for one in peer.barrier() if one[:4] in (b"LS+ ", b"LS- "))


STEPS = [
    (b"SUB p.s.x 1\r\n", [b"LS+ s.x"]),
    (b"SUB p.s.x 2\r\n", []),
    (b"SUB other 3\r\nSUB s.x 4\r\nSUB p.s 5\r\nSUB x.1.z.2 6\r\n", []),
    (b"SUB x.1.y.* 7\r\n", [b"LS+ t.*.1"]),
    (b"SUB > q 8\r\n", [b"LS+ s.> q 1", b"LS+ t.*.* q 1"]),
    (b"SUB p.> q 9\r\n", [b"LS+ s.> q 2"]),
    (b"UNSUB 1\r\n", []),
    (b"UNSUB 2\r\n", [b"LS- s.x"]),
    (b"UNSUB 8\r\n", [b"LS+ s.> q 1", b"LS- t.*.* q"]),
]  # fmt: skip


@contextlib.contextmanager
def hub_and_leaf_wire(kind: str) -> Iterator[tuple[Member, LeafWire]]:
    port = free_port()
    with configured(kind, hub_conf(port)) as member:
        wire = LeafWire.joining(port)
        yield member, wire
        wire.close()


@contextlib.contextmanager
def leaf_and_hub_wire(kind: str) -> Iterator[tuple[Member, RouteWire]]:
    port = HubPort()
    with configured(kind, leaf_conf(port.port)) as member:
        wire = port.joins()
        yield member, wire
        wire.close()
    port.close()


ONE = [pytest.param(kind, marks=mixtures((kind,))[0].marks, id=kind) for kind in (OURS, OURS_3, NEW_REAL)]


@pytest.mark.parametrize("pair", [hub_and_leaf_wire, leaf_and_hub_wire], ids=["a leaf node is", "a hub is"])
@pytest.mark.parametrize("kind", ONE)
def test_told_what_importing_accounts_want_and_no_more(kind: str, pair: type) -> None:
    with pair(kind) as (member, peer):
        assert [one for one in peer.told if one.startswith((b"LS+ s", b"LS+ t"))] == []
        wire = come(member, "B")
        found = []
        for said, _ in STEPS:
            wire.send(said)
            found.append((said, interest(peer, wire)))
        assert found == STEPS
        # What clients of the account itself want too is told once.
        own = come(member, "A", b"SUB t.*.1 1\r\nSUB s.> q 2\r\n")
        assert interest(peer, own) == [b"LS+ s.> q 2"]
        wire.close()
        assert peer.hears(b"LS+ s.> q 1").count(b"LS- t.*.1") == 0
        own.close()
        assert b"LS- t.*.1" in peer.hears(b"LS- s.> q") + peer.barrier()


@pytest.mark.parametrize("kind", ONE)
def test_leaf_nodes_and_not_hubs_are_told_what_a_hub_wants_of_an_importing_account(kind: str) -> None:
    """Also one that comes later; and what a leaf node wants is told to hubs."""
    of_a, of_b, port = HubPort(), HubPort(), free_port()
    remotes = ", ".join(
        f'{{url: "nats-leaf://127.0.0.1:{hub.port}", account: {name}, compression: off}}'
        for hub, name in ((of_a, "A"), (of_b, "B"))
    )
    users = ", ".join(f"{{user: {name.lower()}, password: {name.lower()}, account: {name}}}" for name in "ABC")
    leaves = f'listen: "127.0.0.1:{port}", authorization {{ users: [{users}] }}, remotes: [{remotes}]'
    with configured(kind, conf("between", True, leaves)) as member:
        hub_a, hub_b = of_a.joins(), of_b.joins()
        leaf = LeafWire.joining(port)
        wire = come(member, "A")
        hub_b.send(b"LS+ p.s.x q 3\r\nLS+ p.s.y\r\n")
        hub_b.barrier()
        assert b"LS+ s.y" in leaf.hears(b"LS+ s.y")
        assert interest(hub_a, wire) == []
        late = LeafWire.joining(port)
        assert {b"LS+ s.x q 3", b"LS+ s.y"} <= set(late.told)
        leaf_b = LeafWire.joining(port, "b")
        leaf_b.wants(b"LS+ p.s.y\r\n")
        assert hub_a.hears(b"LS+ s.y") == [b"LS+ s.y"]
        hub_b.send(b"LS- p.s.x q\r\nLS- p.s.y\r\n")
        hub_b.barrier()
        assert b"LS- s.y" not in leaf.hears(b"LS- s.x q") + leaf.barrier()
        for each in (hub_a, hub_b, leaf, late, leaf_b, wire):
            each.close()
    of_a.close()
    of_b.close()


# --- who has what -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanting:
    side: int  # 0: at the hub
    account: str
    subject: str
    queue: str
    number: int


SUBJECTS = {"A": ["s.x.x", "s.x.*"], "B": ["p.s.x.x", "p.*.x.x"], "C": ["s.x.x", "s.x.>"]}


def drawn(rng: random.Random) -> list[Wanting]:
    found = []
    for number in range(rng.randint(2, 6)):
        account = rng.choice("AABBC")
        queue = rng.choice(["", "q", "q", "r"])
        found.append(Wanting(rng.randrange(2), account, rng.choice(SUBJECTS[account]), queue, number))
    return found


class Pair:
    """A hub and its leaf node, and a client of each account of each that is connected."""

    def __init__(self, members: Sequence[Member], accounts: str) -> None:
        self.members, self.accounts = members, accounts
        self.wires = {(side, account): come(members[side], account) for account in accounts + "A" for side in (0, 1)}

    def connected(self) -> None:
        """Until what was wanted before is known on the other side, and what was published before has come there."""
        number = next(NUMBERS)
        for account in self.accounts:
            wires = [self.wires[side, account] for side in (0, 1)]
            for wire in wires:
                wire.send(b"SUB probe.%d %d\r\n" % (number, number))
                wire.barrier()

            def both_hear(wires: Sequence[Wire] = wires) -> bool:
                for side, wire in enumerate(wires):
                    wire.send(b"PUB probe.%d 1\r\n%d\r\n" % (number, side))
                for wire in wires:
                    wire.barrier()
                return all(b"%d" % (1 - side) in bodies(wire) for side, wire in enumerate(wires))

            wait_until(both_hear, f"the sides of {account} hear each other")
            for wire in wires:
                wire.send(b"UNSUB %d\r\n" % number)
                wire.barrier()
                wire.heard.data, wire.asked = b"", 0


Had = list[Counter[tuple[Wanting, bytes]]]


def played(pair: Pair, all_wanting: Sequence[Wanting], expected: Had | None) -> Had:
    """Who had which message how often; of what either side published."""
    wires = [
        come(pair.members[one.side], one.account, f"SUB {one.subject} {one.queue} 1\r\n".encode())
        for one in all_wanting
    ]
    pair.connected()
    found: Had = []
    for side in (0, 1):
        for wire in wires:
            wire.heard.data, wire.asked = b"", 0
        publisher = pair.wires[side, "A"]
        publisher.send(b"".join(b"PUB s.x.x 2\r\n%02d\r\n" % n for n in range(COUNT)))
        publisher.barrier()
        pair.connected()
        for wire in wires:
            wire.barrier()
        settled(pair.members, wires, expected[side].total() if expected is not None else 0)
        had = zip(all_wanting, wires, strict=True)
        found.append(Counter((one, body) for one, wire in had for body in bodies(wire)))
    for wire in wires:
        wire.close()
    return found


def told_apart(had: Counter[tuple[Wanting, bytes]]) -> object:
    """Members of a group are as good as each other, if they have some of the messages."""
    plain = {(one, body): n for (one, body), n in had.items() if not one.queue}
    groups = Counter[tuple[str, bytes]]()
    for (one, body), n in had.items():
        groups[one.queue, body] += n if one.queue else 0
    return plain, groups, {one for one, _ in had}


CASES = [("A", True, True), ("B", True, True), ("AB", True, False), ("AB", False, True), ("ABC", True, True)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "kinds", [*mixtures((OURS, NEW_REAL), (NEW_REAL, OURS_3)), *mixtures((OURS_3, OURS), long=True)]
)
def test_who_wants_it_has_it_as_between_real_ones(
    kinds: Sequence[str], case: tuple[str, bool, bool], request: pytest.FixtureRequest
) -> None:
    accounts, *imports = case
    rng = random.Random(str(case))
    with contextlib.ExitStack() as stack:
        pairs = []
        for hub, leaf in ((NEW_REAL, NEW_REAL), kinds):
            port = free_port()
            one = stack.enter_context(configured(hub, hub_conf(port, imports[0])))
            two = stack.enter_context(configured(leaf, leaf_conf(port, accounts, imports[1])))
            pairs.append(Pair((one, two), accounts))
        for _ in range(20 if request.config.getoption("--long") else 2):
            all_wanting = drawn(rng)
            real = played(pairs[0], all_wanting, None)
            ours = played(pairs[1], all_wanting, real)
            assert [told_apart(had) for had in ours] == [told_apart(had) for had in real], all_wanting
