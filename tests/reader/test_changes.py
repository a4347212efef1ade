"""Who looks again is told what has changed since: put to what they knew, it is what there is."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.shards.reader.changes import Changes
from mq_shards.shards.reader.shard import Topic

from tests.reader.broker import Broker, started

SHARDS = 3
NAMES = st.sampled_from([f"t{n}" for n in range(8)])


def topic(name: str, latest: int) -> Topic:
    return Topic(name, hash(name) % SHARDS, 0, 0, latest, latest, 100 * latest, latest, 1)


class Onlooker:
    def __init__(self) -> None:
        self.token = ""
        self.topics: dict[str, Topic] = {}

    def look(self, changes: Changes) -> int:
        """How many topics were told."""
        found = changes.listing(self.token)
        if found.whole:
            self.topics = {}
        for name in found.gone:
            self.topics.pop(name, None)
        self.topics |= {topic.name: topic for topic in found.topics}
        self.token = found.token
        return len(found.topics)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(st.tuples(NAMES, st.integers(0, 3)), st.integers(0, 2), st.just("restart")), max_size=60),
    st.integers(0, 6),
)
def test_who_looks_again_knows_what_there_is(steps: list[tuple[str, int] | int | str], max_gone: int) -> None:
    changes, onlookers = Changes(max_gone), [Onlooker() for _ in range(3)]
    there: dict[str, Topic] = {}

    def update() -> None:
        for shard in range(SHARDS):
            changes.take(shard, [of for of in there.values() if of.shard == shard])

    for step in steps:
        if step == "restart":
            changes = Changes(max_gone)
            update()
        elif isinstance(step, int):
            onlookers[step].look(changes)
            assert onlookers[step].topics == there
            assert onlookers[step].look(changes) == 0
        elif isinstance(step, tuple):
            name, latest = step
            if latest:
                there[name] = topic(name, latest)
            else:
                there.pop(name, None)
            update()
    for onlooker in onlookers:
        onlooker.look(changes)
        assert onlooker.topics == there


def test_what_went_is_not_remembered_for_ever() -> None:
    changes, onlooker = Changes(max_gone=10), Onlooker()
    onlooker.look(changes)
    for n in range(1000):
        changes.take(0, [topic(f"t{n}", 1)])
    assert len(changes._last) <= 11
    onlooker.look(changes)
    assert set(onlooker.topics) == {"t999"}


def _names(broker: Broker, query: str) -> tuple[set[str], str, bool]:
    found = broker.json(f"/v1/topics?{query}")
    topics, token = found["topics"], found["changes"]
    assert isinstance(topics, list)
    assert isinstance(token, str)
    return {topic["topic"] for topic in topics}, token, found["whole"] is True


def test_a_broker_tells_what_has_changed_and_only_what_was_asked_for(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(("orders.a", b"1"), ("orders.b", b"1"), ("mails", b"1"))
        names, token, whole = _names(broker, "")
        assert (names, whole) == ({"orders.a", "orders.b", "mails"}, True)
        assert _names(broker, "prefix=orders.")[0] == {"orders.a", "orders.b"}
        assert _names(broker, "topics=mails,orders.b,none")[0] == {"mails", "orders.b"}
        assert _names(broker, f"since={token}") == (set(), token, False)
        broker.publish(("orders.b", b"2"), ("new", b"1"))
        assert _names(broker, f"since={token}&prefix=orders")[0] == {"orders.b"}
        names, later, whole = _names(broker, f"since={token}")
        assert (names, whole) == ({"orders.b", "new"}, False)
        assert _names(broker, f"since={later}")[0] == set()
        for odd in ("x", "x.1", token.partition(".")[0], token.partition(".")[0] + ".999999", token + "0" * 40):
            names, _, whole = _names(broker, f"since={odd}")
            assert whole
            assert len(names) == 4
