"""The trie of subjects against a model that compares token by token. The contract is in csrc/base/subjects.h."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import ffi, lib

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))
TOKENS = st.sampled_from(["a", "b", "cc", "*", ">", "**", ">>", "a*", ""])
TEXTS = st.lists(TOKENS, min_size=1, max_size=5).map(".".join)
QUEUES = st.sampled_from(["", "", "q", "r"])


def valid(pattern: str) -> bool:
    tokens = pattern.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def matches(pattern: str, subject: str) -> bool:
    """By the words of the protocol, one token after the other."""
    wanted, there = pattern.split("."), subject.split(".")
    if not all(there):
        return False
    for n, token in enumerate(wanted):
        if token == ">":
            return len(there) > n
        if n >= len(there) or token not in ("*", there[n]):
            return False
    return len(wanted) == len(there)


class Trie:
    """The C one, with entries numbered as they come."""

    def __init__(self) -> None:
        self.subjects = lib.subjects_new(lib.siphash_key(1))
        self.walk = lib.subject_walk_new()
        self.entries: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}

    def add(self, number: int, pattern: str, queue: str, weight: int = 1) -> bool:
        entry = ffi.new("struct subject_entry *", {"weight": weight})
        first = ffi.new("bool *")
        assert lib.subjects_add(self.subjects, entry, pattern.encode(), len(pattern), queue.encode(), len(queue), first)
        self.entries[number] = entry
        self.numbers[int(ffi.cast("uintptr_t", entry))] = number
        return bool(first[0])

    def remove(self, number: int) -> bool:
        return bool(lib.subjects_remove(self.subjects, self.entries.pop(number)))

    def number(self, entry: object) -> int:
        return self.numbers[int(ffi.cast("uintptr_t", entry))]

    def match(self, subject: str) -> tuple[Counter[int], dict[str, tuple[int, list[int]]]]:
        """Those alone, and of each group its weight and who is picked by each part of it."""
        out = ffi.new("struct subject_pattern *const **")
        count = lib.subjects_match(self.subjects, self.walk, subject.encode(), len(subject.encode()), out)
        patterns = out[0]
        alone: Counter[int] = Counter()
        groups: dict[str, tuple[int, list[int]]] = {}
        names = lib.subject_groups_gather(lib.subjects_groups(self.subjects), patterns, count)
        for at in range(count):
            pattern = patterns[at]
            items = lib.subject_entries_items(ffi.addressof(pattern, "alone"))
            alone.update(self.number(items[n]) for n in range(pattern.alone.count))
            group = pattern.groups
            while group != ffi.NULL:
                if group.name.found == group:
                    groups[self.text(group.name)] = self.picked(group.name)
                group = group.next
        assert len(groups) == names
        self.ask_by_name(patterns, count, groups)
        return alone, groups

    def text(self, name: Any) -> str:  # noqa: ANN401
        return ffi.string(ffi.cast("char *", name) + lib.SUBJECT_NAME_OFFSET, name.bytes).decode()

    def picked(self, name: Any) -> tuple[int, list[int]]:  # noqa: ANN401
        weight = int(name.weight)
        return weight, [self.number(lib.subject_name_pick(name, nth)) for nth in range(weight)]

    def ask_by_name(self, patterns: Any, count: int, groups: dict[str, tuple[int, list[int]]]) -> None:  # noqa: ANN401
        """One that is asked for by its name alone is the same; so that few are looked for and many gone through."""
        all_groups = lib.subjects_groups(self.subjects)
        for wanted in (["q"], ["nobody"], ["r", "q", "r", "nobody"]):
            kept = [ffi.new("uint8_t[]", one.encode()) for one in wanted]
            names = ffi.new("struct text[]", [(at, len(one)) for at, one in zip(kept, wanted, strict=True)])
            lib.subject_groups_gather_named(all_groups, patterns, count, names, len(wanted))
            for one in wanted:
                found = lib.subject_groups_named(all_groups, one.encode(), len(one))
                assert (found != ffi.NULL) == (one in groups)
                if found != ffi.NULL:
                    weight, members = self.picked(found)
                    assert (weight, sorted(members)) == (groups[one][0], sorted(groups[one][1]))

    def close(self) -> None:
        for number in list(self.entries):
            self.remove(number)
        assert lib.subjects_pattern_count(self.subjects) == 0
        lib.subjects_free(self.subjects)
        lib.subject_walk_free(self.walk)


@pytest.fixture
def trie() -> Iterator[Trie]:
    trie = Trie()
    yield trie
    trie.close()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TEXTS.filter(valid), QUEUES),
        st.tuples(st.just("remove"), st.integers(0, 100), st.just("")),
        st.tuples(st.just("match"), TEXTS, st.just("")),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=EXAMPLES)
@given(OPERATIONS)
def test_a_subject_reaches_all_that_stand_alone_and_one_of_each_group(operations: list[tuple[str, Any, str]]) -> None:
    trie, model = Trie(), dict[int, tuple[str, str]]()
    for number, (what, text, queue) in enumerate(operations):
        if what == "add":
            fresh = (text, queue) not in model.values()
            assert trie.add(number, text, queue) == fresh
            model[number] = text, queue
        elif what == "remove" and model:
            victim = sorted(model)[text % len(model)]
            gone = model.pop(victim)
            assert trie.remove(victim) == (gone not in model.values())
        elif what == "match":
            for _ in range(2):  # the second time out of what is kept
                alone, groups = trie.match(text)
                there = {n: (p, q) for n, (p, q) in model.items() if matches(p, text)}
                assert alone == Counter(n for n, (_, q) in there.items() if not q)
                members: dict[str, set[int]] = {}
                for n, (_, q) in there.items():
                    if q:
                        members.setdefault(q, set()).add(n)
                assert {name: set(picked) for name, (_, picked) in groups.items()} == members
        assert lib.subjects_count(trie.subjects) == len(model)
        assert lib.subjects_pattern_count(trie.subjects) == len({p for p, _ in model.values()})
    trie.close()


@given(TEXTS)
def test_a_pattern_is_valid_without_empty_tokens_and_with_the_tail_last(text: str) -> None:
    assert lib.subject_pattern_is_valid(text.encode(), len(text)) == valid(text)
    wild = "*" in text.split(".") or text.split(".")[-1] == ">"
    assert lib.subject_has_wildcard(text.encode(), len(text)) == wild


SUBJECTS = st.lists(st.sampled_from(["a", "b", "cc"]), min_size=1, max_size=4).map(".".join)


@settings(max_examples=EXAMPLES)
@given(TEXTS.filter(valid), TEXTS.filter(valid), SUBJECTS)
def test_covering_and_overlapping_agree_with_matching(one: str, other: str, subject: str) -> None:
    covers = lib.subject_covers(one.encode(), len(one), other.encode(), len(other))
    overlaps = lib.subject_overlaps(one.encode(), len(one), other.encode(), len(other))
    if covers and matches(other, subject):
        assert matches(one, subject)
    if matches(one, subject) and matches(other, subject):
        assert overlaps
    assert lib.subject_covers(one.encode(), len(one), one.encode(), len(one))
    if covers:
        assert overlaps


def test_members_are_picked_in_proportion_to_their_weights(trie: Trie) -> None:
    trie.add(1, "a.*", "q", 1)
    trie.add(2, "a.b", "q", 2)
    trie.add(3, "a.b", "q", 5)
    _, groups = trie.match("a.b")
    counted = Counter(groups["q"][1])
    assert counted == {1: 1, 2: 2, 3: 5}
    lib.subjects_weigh(trie.entries[3], 1)
    counted = Counter(trie.match("a.b")[1]["q"][1])
    assert counted == {1: 1, 2: 2, 3: 1}


def test_what_is_kept_of_a_match_goes_when_a_pattern_that_matches_comes_or_goes(trie: Trie) -> None:
    trie.add(1, "a.*", "")
    assert trie.match("a.b")[0] == Counter([1])
    assert trie.match("a.b")[0] == Counter([1])
    assert lib.subjects_hits(trie.subjects) == 1
    trie.add(2, "a.b", "")
    assert trie.match("a.b")[0] == Counter([1, 2])
    trie.add(4, "a.c", "")  # of another subject: nothing that is kept is wrong
    assert trie.match("a.b")[0] == Counter([1, 2])
    assert lib.subjects_hits(trie.subjects) == 2
    trie.add(3, "*.b", "")
    assert trie.match("a.b")[0] == Counter([1, 2, 3])
    trie.remove(1)
    assert trie.match("a.b")[0] == Counter([2, 3])


def fanout(trie: Trie, subject: str, piece: int = 1 << 20) -> int:
    """As it is told of what is kept, which is this alone."""
    trie.match(subject)
    kept, place, left = ffi.new("struct subjects_kept *"), ffi.new("uint32_t *"), ffi.new("size_t *", piece)
    while not lib.subjects_kept(trie.subjects, place, left, kept):
        assert left[0] == 0
        left[0] = piece
    assert (kept.subjects, kept.fanout) == (1, kept.max_fanout)
    return int(kept.fanout)


def test_who_has_a_message_is_counted_a_group_once(trie: Trie) -> None:
    trie.add(10_000, "a.*", "")
    trie.add(10_001, "*.b", "")
    for number in range(4):
        trie.add(number, "a.*", f"q{number}")
        trie.add(1000 + number, "*.b", f"q{number}")
    assert fanout(trie, "a.b") == 2 + 4
    for number in range(4, 500):
        trie.add(number, "a.*", f"q{number}")
        trie.add(1000 + number, "*.b", f"r{number}")
    assert fanout(trie, "a.b") == fanout(trie, "a.b", 1) == 2 + 4 + 2 * 496
    trie.remove(4)
    assert fanout(trie, "a.b") == 2 + 4 + 2 * 496 - 1


def test_very_many_groups_come_and_go_in_any_order(trie: Trie) -> None:
    """Where one is looked for among all the others of its pattern this takes minutes."""
    many = 30_000
    for number in range(many):
        trie.add(number, "a.*", f"q{number}")
    numbers = list(range(many))
    random.Random(1).shuffle(numbers)
    for number in numbers[: many // 2]:
        assert trie.remove(number)
    assert fanout(trie, "a.b") == many - many // 2


def test_a_very_long_subject_is_matched_and_a_longer_one_matches_nothing(trie: Trie) -> None:
    trie.add(1, ">", "")
    longest = ".".join(["a"] * (1 << 15))
    assert trie.match(longest)[0] == Counter([1])
    assert not trie.match(longest + ".aa")[0]


def hits_of(trie: Trie, subjects: Sequence[str]) -> float:
    """The share of subjects whose match was cached."""
    before = lib.subjects_hits(trie.subjects)
    for subject in subjects:
        trie.match(subject)
    return int(lib.subjects_hits(trie.subjects) - before) / len(subjects)


def test_the_cache_grows_for_subjects_that_come_again(trie: Trie) -> None:
    """And what it has then is right."""
    trie.add(0, "a.>", "")
    often = [f"a.{n}" for n in range(200)]
    assert hits_of(trie, often) == 0
    hits_of(trie, often * 20)
    assert hits_of(trie, often) > 0.8
    trie.add(1, "a.7", "")
    assert trie.match("a.7")[0] == Counter([0, 1])
    trie.add(2, "*.8", "")
    assert trie.match("a.8")[0] == Counter([0, 2])
    assert hits_of(trie, often[:100]) < 0.1  # all that was cached may be wrong now


def test_the_cache_is_small_while_few_subjects_come_again(trie: Trie) -> None:
    trie.add(0, "a.>", "")
    cached, place, left = ffi.new("struct subjects_kept *"), ffi.new("uint32_t *"), ffi.new("size_t *", 1 << 20)
    hits_of(trie, [f"a.{n}" for n in range(2000)])
    assert lib.subjects_kept(trie.subjects, place, left, cached)
    assert cached.subjects == 16
    trie.remove(0)
    place[0] = cached.subjects = 0
    assert lib.subjects_kept(trie.subjects, place, left, cached)
    assert cached.subjects == 0


TAIL_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "remove", "begin", "walk"]), st.integers(0, 1000)), max_size=80
)


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.integers(0, 12), TAIL_STEPS)
def test_a_walk_in_pieces_meets_whoever_is_there_from_its_beginning_on(
    first: int, steps: list[tuple[str, int]]
) -> None:
    """Once each, whoever comes and goes meanwhile, and beside other walks."""
    trie, tails, number = Trie(), list[tuple[Any, set[int], list[int]]](), 0
    for _ in range(first):
        trie.add(number, "a", "")
        number += 1
    for what, value in steps:
        if what == "add":
            trie.add(number, "a", "")
            number += 1
        elif what == "remove" and trie.entries:
            victim = sorted(trie.entries)[value % len(trie.entries)]
            trie.remove(victim)
            for _, wanted, met in tails:
                wanted -= {victim} - set(met)
        elif what == "begin" and trie.entries and len(tails) < 4:
            pattern = trie.entries[min(trie.entries)].pattern
            begin = value % (pattern.alone.count + 1)
            items = lib.subject_entries_items(ffi.addressof(pattern, "alone"))
            tail = ffi.new("struct subject_tail *")
            lib.subjects_tail_begin(trie.subjects, tail, pattern, begin)
            tails.append((tail, {trie.number(items[n]) for n in range(begin, pattern.alone.count)}, []))
        elif what == "walk" and tails:
            walk_on(trie, *tails[value % len(tails)][::2], 1 + value % 3)
    for tail, wanted, met in tails:
        walk_on(trie, tail, met, len(wanted) + 1)
        assert sorted(met) == sorted(wanted)
        lib.subjects_tail_end(trie.subjects, tail)
    trie.close()


def walk_on(trie: Trie, tail: Any, met: list[int], most: int) -> None:  # noqa: ANN401
    while tail.begin < tail.end and most > 0:
        met.append(trie.number(lib.subject_entries_items(tail.entries)[tail.begin]))
        tail.begin += 1
        most -= 1
