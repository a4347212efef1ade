"""Things found by patterns of subjects, in a tree of tokens, so that thousands of exports and imports of an account are
not all looked at for each other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

HERE: Final = ""  # what ends at a node is kept in it under this name
Node = dict[str, Any]


class Patterns(Generic[T]):
    """What it finds is in the order in which it was added."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._count = 0

    def add(self, pattern: str, item: T) -> None:
        node = self._root
        for token in pattern.split("."):
            node = node.setdefault(f".{token}", {})
            if token == ">":
                break
        node.setdefault(HERE, []).append((self._count, item))
        self._count += 1

    def covering(self, pattern: str) -> list[T]:
        """Those whose patterns match all subjects that this one matches."""
        found: list[tuple[int, T]] = []
        nodes = [self._root]
        for token in pattern.split("."):
            for node in nodes:
                found += _ending(node.get(".>"))
            names = () if token == ">" else {f".{token}", ".*"}
            nodes = [node[name] for node in nodes for name in names if name in node]
        for node in nodes:
            found += _ending(node)
        return _ordered(found)

    def overlapping(self, pattern: str) -> list[T]:
        """Those with whose patterns this one has a subject in common."""
        found: list[tuple[int, T]] = []
        nodes = [self._root]
        for token in pattern.split("."):
            if token == ">":
                nodes = [child for node in nodes for child in _children(node)]
                for node in nodes:
                    found += _below(node)
                return _ordered(found)
            for node in nodes:
                found += _ending(node.get(".>"))
            if token == "*":
                nodes = [child for node in nodes for name, child in node.items() if name not in (HERE, ".>")]
            else:
                nodes = [node[name] for node in nodes for name in {f".{token}", ".*"} if name in node]
        for node in nodes:
            found += _ending(node)
        return _ordered(found)


def _ending(node: Node | None) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = node.get(HERE, []) if node is not None else []
    return found


def _children(node: Node) -> Iterator[Node]:
    return (child for name, child in node.items() if name != HERE)


def _below(node: Node) -> Iterator[tuple[int, Any]]:
    """What ends here or further down."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        yield from _ending(node)
        nodes += _children(node)


def _ordered(found: list[tuple[int, T]]) -> list[T]:
    return [item for _, item in sorted(found, key=lambda one: one[0])]
