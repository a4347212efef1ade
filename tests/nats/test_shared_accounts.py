"""What accounts known by JWTs share: an account that says something else is looked at without all the others, and what
comes of it is what looking at all of them says."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.acceptor.protocols.nats import claims_shares
from mq_shards.acceptor.protocols.nats.admission import Admission
from mq_shards.acceptor.protocols.nats.claims import Account, account_of
from mq_shards.acceptor.protocols.nats.claims_shares import Shared
from mq_shards.acceptor.protocols.nats.shares import Lines, all_lines

from tests.nats.engine_client import NATS, Client, opened
from tests.nats.jwts import Account as Key
from tests.nats.jwts import Operator

OPERATOR = Operator()
KEYS = [Key(f"sharing {number}") for number in range(5)]
NOW_S = 1_800_000_000.0
SUBJECTS = ("a", "b.*", "c.>")
PLACES = range(len(KEYS))


@cache
def token(exporter: int, importer: int, kind: str, subject: str) -> str:
    return KEYS[exporter].activation(KEYS[importer], kind, subject)


kinds = st.sampled_from(["stream", "service"])
exports = st.lists(
    st.tuples(kinds, st.sampled_from(SUBJECTS), st.booleans()), max_size=3, unique_by=lambda one: one[:2]
)
imports = st.lists(
    st.tuples(kinds, st.sampled_from(SUBJECTS), st.sampled_from(PLACES), st.booleans(), st.booleans()), max_size=3
)
steps = st.lists(st.tuples(st.sampled_from(PLACES), exports, imports), min_size=1, max_size=12)


def account(place: int, gives: Any, takes: Any) -> Account:  # noqa: ANN401
    """`takes`: also what nobody gives, what is given to others only, and what leads back to where it came from."""
    said_imports = [
        {
            "type": kind, "subject": subject, "account": KEYS[giver].public,
            "local_subject": subject if as_it_is else f"from{giver}.{subject}",
            **({"token": token(giver, place, kind, subject)} if has_token else {}),
        }
        for kind, subject, giver, has_token, as_it_is in takes
        if giver != place
    ]  # fmt: skip
    said_exports = [
        {"type": kind, "subject": subject, **({"token_req": True} if private else {})}
        for kind, subject, private in gives
    ]
    jwt = OPERATOR.account(KEYS[place], exports=said_exports, imports=said_imports)
    return account_of(jwt, KEYS[place].public, strict=frozenset())


def in_order(rows: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            **row,
            "exports": [{**one, "accounts": sorted(one.get("accounts", ()))} for one in row["exports"]],
        }
        for name, row in rows.items()
    }


def number_of(name: str) -> int:
    return [key.public for key in KEYS].index(name) + 1


def lines_of(lines: Lines) -> dict[str, list[str]]:
    return {key.public: sorted(lines.of(key.public).splitlines()) for key in KEYS}


@settings(max_examples=60, deadline=None)
@given(steps)
def test_what_one_says_anew_is_as_if_all_were_looked_at(script: list[tuple[int, Any, Any]]) -> None:
    accounts: dict[str, Account] = {}
    shared = Shared()
    lines = Lines(number_of)
    for place, gives, takes in script:
        one = account(place, gives, takes)
        accounts[one.name] = one
        changed = shared.look_at([one.name], accounts, NOW_S)
        whole = Shared()
        whole.look(accounts, NOW_S)
        if changed is None:
            shared = whole
            lines = all_lines(list(whole.rows.values()), number_of)
            continue
        assert in_order(shared.rows) == in_order(whole.rows)
        for name in changed:
            lines.learn(shared.rows[name], shared.rows)
        assert lines_of(lines) == lines_of(all_lines(list(whole.rows.values()), number_of))


def test_very_many_accounts_that_take_the_same_do_not_look_at_each_other(monkeypatch: Any) -> None:  # noqa: ANN401
    looked = 0
    export_of = claims_shares.export_of

    def counted(*asked: Any) -> Any:  # noqa: ANN401
        nonlocal looked
        looked += 1
        return export_of(*asked)

    monkeypatch.setattr(claims_shares, "export_of", counted)
    giver = account(0, [("stream", "a", False)], [])
    accounts = {giver.name: giver}
    shared = Shared()
    shared.look(accounts, NOW_S)
    many = 300
    for number in range(many):
        key = Key(f"one of many {number}")
        said = [{"type": "stream", "subject": "a", "account": giver.name, "local_subject": "a"}]
        one = account_of(OPERATOR.account(key, imports=said), key.public, strict=frozenset())
        accounts[one.name] = one
        assert shared.look_at([one.name], accounts, NOW_S) == {one.name, giver.name}
    assert looked == many


STOLEN = "\n".join(f"v {number} 0 1 1000000000 0 - stolen =secret" for number in range(1, 5))  # all accounts
DEEP = ".".join("t" * 300)


@pytest.mark.parametrize(
    ("said", "gets"),
    [
        ({"mappings": {f"a\nd 100 =b\n{STOLEN}\nm c": [{"subject": "d"}]}}, "from"),
        ({"mappings": {"a": [{"subject": f"b\n{STOLEN}"}]}}, "from"),
        ({"mappings": {"a.*": [{"subject": f"b.{{{{split(1,-\n{STOLEN}\n)}}}}"}]}}, "from"),
        ({"mappings": {"from": [{"subject": "t o"}]}}, "from"),
        ({"mappings": {"from": [{"subject": "to"}], DEEP: [{"subject": DEEP}]}}, "to"),
        ({"mappings": {"from": [{"subject": "to"}], "a." + "b" * 70_000: [{"subject": "c"}]}}, "to"),
        ({"mappings": {"from": [{"subject": "to"}], ".".join("*" * 20): [
            {"subject": "{{partition(9," + ",".join(map(str, range(1, 20))) + ")}}"}]}}, "to"),
        ({"imports": [{"type": "stream", "account": KEYS[0].public, "subject": f"s\n{STOLEN}"}]}, "from"),
        ({"imports": [{"type": "service", "account": KEYS[0].public, "subject": "v",
                       "local_subject": f"x\n{STOLEN}"}]}, "from"),
    ],
)  # fmt: skip
def test_what_a_jwt_says_is_never_a_line_of_the_codec(said: dict[str, Any], gets: str) -> None:
    """Nobody comes to another account's subjects by it, what is right beside it is obeyed, and others are served."""
    gives = {
        "exports": [{"type": kind, "subject": ">"} for kind in ("stream",)] + [{"type": "service", "subject": "v"}]
    }
    jwts = {KEYS[0].public: OPERATOR.account(KEYS[0], **gives), KEYS[1].public: OPERATOR.account(KEYS[1], **said)}
    accounts = {name: account_of(jwt, name) for name, jwt in jwts.items()}
    shared = Shared()
    shared.look(accounts, NOW_S)
    with opened() as engine:
        admission = Admission(engine, NATS)
        admission.share("", list(shared.rows.values()))
        victim, thief, beside = Client(engine), Client(engine), Client(engine)
        engine.call(victim.conn, "account", admission.account(KEYS[0].public))
        for client in (thief, beside):
            engine.call(client.conn, "account", admission.account(KEYS[1].public))
        victim.say(b"SUB secret 1\r\n")
        beside.say(b"SUB from 1\r\nSUB to 2\r\n")
        beside.turn()
        thief.say(b"PUB stolen in 0\r\n\r\nPUB from 0\r\n\r\n")
        for _ in range(4):
            thief.turn()
        assert victim.hear() == b""
        assert beside.hear().split()[1:2] == [gets.encode()]
