"""Who may do what, by each protocol: users, rights and actions, with clients that people use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.erased import Mark, load_segments
from mq_shards.shards.meta import read_meta

from tests.access import broker as access
from tests.access.broker import BOSS, CLERK, NOBODY, PEOPLE, SHOP, Guarded, Person, guarded, wire_auth
from tests.servers import wait_until

Can = Callable[[Guarded, Person, str, str], bool]

BY: Final[dict[str, tuple[Can, tuple[str, ...]]]] = {
    "beanstalk": (access.beanstalk_can, ("publish", "consume", "read", "manage")),
    "nsq": (access.nsq_can, ("publish", "consume")),
    "nats": (access.nats_can, ("publish", "consume")),
    "pulsar": (access.pulsar_can, ("publish", "consume")),
    "http": (access.http_can, ("publish", "read", "manage")),
    "nsq-http": (access.nsq_http_can, ("publish", "manage")),
    "pulsar-http": (access.pulsar_http_can, ("manage",)),
}
TOPICS: Final = ("orders", "mail", "other")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as one:
        yield one


def granted(person: Person, action: str, topic: str) -> bool:
    return any(topic == one or one == "*" for one in person.rights.get(action, ()))


@pytest.mark.parametrize("protocol", BY)
def test_each_user_may_what_is_granted_and_nothing_else(broker: Guarded, protocol: str) -> None:
    can, actions = BY[protocol]
    wrong = []
    for person in PEOPLE:
        for action in actions:
            for topic in TOPICS:
                found = can(broker, person, action, topic)
                if found != granted(person, action, topic):
                    wrong.append(f"{person.name} {'may' if found else 'may not'} {action} {topic}")
    assert not wrong


def test_who_is_nobody_is_not_served(broker: Guarded) -> None:
    for scheme, target in (
        ("http", "/v1/topics"), ("http", "/v1/overview"), ("http", "/metrics"), ("http", "/v1/peek?topic=orders"),
        ("nsq-http", "/stats"), ("nsq-http", "/config/log_level"), ("pulsar-http", "/admin/v2/tenants"),
        ("nats-http", "/varz"),
    ):  # fmt: skip
        assert broker.request("GET", target, scheme=scheme)[0] == 401, target
        assert broker.request("GET", target, scheme=scheme, token=BOSS.token)[0] in (200, 404), target
    for scheme, target in (("http", "/"), ("http", "/v1/health"), ("nsq-http", "/ping"), ("nats-http", "/healthz")):
        assert broker.request("GET", target, scheme=scheme)[0] == 200, target
    assert broker.act(None, do="publish", topic="orders", body="x") == 401


def test_a_wrong_token_is_nobodys(broker: Guarded) -> None:
    assert broker.request("GET", "/v1/topics", token="mqs_of-nobody")[0] == 401
    with access.Wire(broker.ports["nsq"]) as wire:
        wire.identify()
        wire.fails(access.frames.pub("orders", b"x"), "E_AUTH_FIRST AUTH required before PUB")
    with access.Wire(broker.ports["nsq"]) as wire:
        wire.identify()
        wire.fails(wire_auth("mqs_of-nobody"), "E_AUTH_FAILED AUTH failed")


def test_what_concerns_the_whole_broker_wants_the_right_to_all(broker: Guarded) -> None:
    for person, status in ((BOSS, 200), (CLERK, 403), (NOBODY, 403)):
        found, _ = broker.request("PUT", "/config/log_level", b"info", scheme="nsq-http", token=person.token)
        assert found == status, person
    assert broker.request("GET", "/admin/v2/tenants", scheme="pulsar-http", token=CLERK.token)[0] in (401, 403)


def test_who_may_manage_a_topic_erases_it_and_is_named(broker: Guarded) -> None:
    assert broker.act(BOSS, do="publish", topic="erasable", body="x") == 200
    for person in (CLERK, NOBODY):
        assert broker.request("DELETE", "/v1/topics/erasable", token=person.token)[0] == 403, person
    assert broker.request("DELETE", "/v1/topics/erasable", token=BOSS.token)[0] == 200
    _, found = broker.request("GET", "/v1/erased", token=BOSS.token)
    assert [(one["topic"], one["by"]) for one in found["erased"]] == [("erasable", BOSS.name)]


def test_who_may_not_manage_all_lets_no_history_of_others_go_sooner(broker: Guarded) -> None:
    """log.erased-hours also takes what lies beside erased messages."""
    data = broker.users.parent / "data"
    shard = crc32c(b"mail") % read_meta(data).shards
    for person in (CLERK, BOSS, CLERK):
        before = load_segments(data).get(shard, Mark())
        assert broker.act(BOSS, do="publish", topic="mail", body="x") == 200
        assert broker.request("DELETE", "/v1/topics/mail", token=person.token)[0] == 200
        mark = load_segments(data)[shard]
        assert mark.last and mark.soon == (mark.last if person is BOSS else before.soon), person


def test_one_who_may_not_consume_all_deletes_what_he_has_reserved_and_what_he_watches(broker: Guarded) -> None:
    import greenstalk

    port = broker.ports
    with greenstalk.Client(("127.0.0.1", port["beanstalk boss"]), use="mail", watch="mail") as boss:
        other = boss.put(b"not yours")
        mine = boss.put(b"yours", priority=1)
        with greenstalk.Client(("127.0.0.1", port["beanstalk shop"])) as shop:
            with pytest.raises(greenstalk.NotFoundError):
                shop.delete(other)
            shop.watch("mail")
            job = shop.reserve(30)
            assert job.id == mine
            shop.delete(job)
            held = shop.reserve_job(other)
            assert held.body == "not yours"
            shop.release(held)
            waiting = [boss.put(b"x"), boss.put(b"x", delay=1000)]
            taken = boss.reserve_job(boss.put(b"x"))
            boss.bury(buried := boss.reserve_job(boss.put(b"x")))
            for one in (*waiting, buried.id):
                shop.delete(one)
            with pytest.raises(greenstalk.NotFoundError):
                shop.delete(taken.id)
            boss.delete(taken)
        with greenstalk.Client(("127.0.0.1", port["beanstalk clerk"])) as clerk:
            for forbidden in (clerk.reserve_job, clerk.peek):
                with pytest.raises(greenstalk.UnknownCommandError):
                    forbidden(other)
            with pytest.raises(greenstalk.UnknownCommandError):
                clerk.reserve(0)  # it may not consume default, and watches nothing
        assert boss.peek(other).body == "not yours"
        boss.delete(other)


def test_a_nats_user_logs_in_by_token_too_and_answers_whoever_asks(broker: Guarded) -> None:
    assert access.nats_can(broker, SHOP, "publish", "orders", token=SHOP.token)
    assert not access.nats_can(broker, SHOP, "publish", "mail", token=SHOP.token)
    assert access.nats_request(broker, asker=SHOP, answerer=CLERK, subject="orders") == b"answered"


def test_spark_sees_the_topics_that_its_user_may_read(broker: Guarded) -> None:
    for topic in ("orders", "mail"):
        assert broker.act(BOSS, do="publish", topic=topic, body="x") == 200
    for person, expected in ((BOSS, {"orders", "mail"}), (CLERK, {"orders"}), (NOBODY, set())):
        _, found = broker.request("GET", "/v1/topics", token=person.token)
        assert {topic["topic"] for topic in found["topics"]} & {"orders", "mail"} == expected
    for person, status in ((CLERK, 200), (SHOP, 403)):
        assert broker.request("GET", "/v1/records?topic=orders&from=0", token=person.token)[0] == status
        assert broker.request("GET", "/v1/offsets?topic=orders&timestamp_ns=0", token=person.token)[0] == status


def refusals(broker: Guarded) -> dict[tuple[str, str], float]:
    """By protocol, of whichever acceptors."""
    _, text = broker.request("GET", "/metrics", token=NOBODY.token)
    line = re.compile(r'^mq_shards_refused_(logins|actions)_total\{.*protocol="([^"]+)"\} (\S+)$', re.MULTILINE)
    found: dict[tuple[str, str], float] = {}
    for what, protocol, count in line.findall(text.decode()):
        found[what, protocol] = found.get((what, protocol), 0) + float(count)
    return found


def test_what_was_refused_is_counted_by_protocol(broker: Guarded) -> None:
    broker.request("GET", "/v1/topics", token="wrong")
    with access.Wire(broker.ports["nsq"]) as wire:
        wire.identify()
        wire.ask(wire_auth("wrong"))
    assert not access.beanstalk_can(broker, CLERK, "manage", "other")
    assert not access.nats_can(broker, SHOP, "publish", "mail", token=SHOP.token)
    assert not access.pulsar_can(broker, SHOP, "publish", "mail")
    assert not access.pulsar_http_can(broker, SHOP, "manage", "mail")
    actions = (("actions", protocol) for protocol in ("beanstalk", "nats", "pulsar", "pulsar-http"))
    refused = (("logins", "nsq"), ("logins", "http"), *actions)
    # Acceptors tell of theirs now and then.
    wait_until(lambda: all(refusals(broker).get(one, 0) >= 1 for one in refused), "all are counted")
    lines = [line for line in broker.server.said().splitlines() if "a login was refused" in line]
    assert all(any(f"{protocol}: a login" in line for line in lines) for protocol in ("nsq", "http")), lines
    assert "try it:" not in broker.server.said(), "these have no login"


def test_what_was_never_refused_is_counted_as_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    """So that it has a rate from the first one on."""
    with guarded(tmp_path_factory.mktemp("quiet"), memory=True) as quiet:
        found = refusals(quiet)
    protocols = ("beanstalk", "nsq", "nats", "pulsar", "http", "nsq-http", "pulsar-http")
    expected = {(kind, protocol) for kind in ("logins", "actions") for protocol in protocols}
    assert expected <= found.keys() and not any(found.values())


def test_no_secret_is_in_the_journal_or_in_ps(broker: Guarded) -> None:
    from pathlib import Path

    said = broker.server.said()
    arguments = [Path(f"/proc/{pid}/cmdline").read_text() for pid in broker.server.pids()]
    for person in PEOPLE:
        for secret in (person.token, person.password):
            assert secret not in said
            assert not any(secret in one for one in arguments)
