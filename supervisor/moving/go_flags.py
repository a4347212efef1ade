"""Command lines as Go's package `flag` reads them: -name=value, -name value, or both with two dashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError

TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")


def read(arguments: Sequence[str], server: str, known: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yields the name and the value of each flag; for a word that is no flag "" and the word. `known`: names, and
    whether a flag is a switch, which needs no value. Raises OptionsError."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            yield "", word
            continue
        flag, equals, value = word.partition("=")
        name = flag[2:] if flag.startswith("--") else flag[1:]
        if name not in known:
            raise OptionsError(f"{server} has no option {flag}")
        if not equals:
            if not known[name] and not rest:
                raise OptionsError(f"{server}: {flag} needs a value")
            value = "true" if known[name] else rest.pop(0)
        yield name, value


def boolean(text: str, flag: str) -> bool:
    """Raises OptionsError."""
    if text not in TRUE and text not in FALSE:
        raise OptionsError(f'{flag}: "{text}" is not true or false')
    return text in TRUE
