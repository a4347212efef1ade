"""Transformations of subjects, as an operator writes them: "$1", "{{wildcard(1)}}", "{{partition(10,1,2)}}", ...

Checks them, and makes the pieces that the codec reads (nats_transform.h). The same is accepted as by nats-server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MAX_NUMBER: Final = (1 << 31) - 1
MAX_PIECES: Final = 256  # as in nats_transform.c, and numbers of one of them
MAX_NUMBERS: Final = 16
MAX_BYTES: Final = 64 << 10  # of a subject, as in csrc/base/subject.h
SHOWN: Final = 200
# Functions of a token and a number, with the codec's letters for them.
OF_TOKEN: Final = {
    "splitfromleft": "L", "splitfromright": "R", "slicefromleft": "l", "slicefromright": "r", "left": "h", "right": "t",
}  # fmt: skip
NUMBERED: Final = r"\$[1-9][0-9]{0,8}"
_SUBJECT: Final = re.compile(r"(?:(?!>\.)[^. \t\n\r\f]+\.)*[^. \t\n\r\f]+")
_PLAIN: Final = re.compile(r"[^.*>$ {\s]+(?:\.[^.*>$ {\s]+)*")  # a subject in which nothing stands for anything else
_FUNCTION: Final = r"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}"


class TransformError(ValueError):
    """Why a destination is not valid."""


def is_literal(text: str) -> bool:
    """Whether one can publish to it."""
    return is_subject(text) and not {"*", ">"} & set(text.split("."))


def is_subject(text: str) -> bool:
    """Whether this is a valid pattern: no blanks, no empty tokens, and ">" only at its end."""
    return _SUBJECT.fullmatch(text) is not None


def tokens_of(subject: str) -> list[str]:
    """Splits at each dot, even within braces: so a delimiter of a function cannot have one."""
    return subject.split(".")


def pieces_of(source: str, destination: str, *, reversible: bool = False) -> str:
    """`reversible`: all wildcards of the source must be used, unchanged. Raises TransformError."""
    if not is_subject(source) or len(source.encode()) > MAX_BYTES:
        raise TransformError(f"{source[:SHOWN]!r} is not a subject")
    is_plain = "*" not in source and ">" not in source and _PLAIN.fullmatch(destination)
    if is_plain and destination.count(".") < MAX_PIECES:
        return "=" + destination.replace(".", " =")
    stars = [place for place, token in enumerate(tokens_of(source)) if token == "*"]
    has_tail = tokens_of(source)[-1] == ">"
    tokens = tokens_of(destination)
    if not all(tokens) or "*" in tokens or ">" in tokens[:-1] or has_tail != (tokens[-1] == ">"):
        raise TransformError(f'"{destination}" cannot be made of "{source}"')
    pieces: list[str] = []
    used = 0
    for token in tokens:
        if token == ">":
            pieces.append(f">{len(tokens_of(source)) - 1}")
            continue
        piece, wildcards = _piece(token, stars, bool(stars) or has_tail)
        if reversible and piece[0] not in "=w":
            raise TransformError(f'"{token}" is not possible in an import')
        used += wildcards
        pieces.append(piece)
    if reversible and used < len(stars):
        raise TransformError(f'"{destination}" does not use all wildcards of "{source}"')
    if len(pieces) > MAX_PIECES or any(re.search(r"\s", piece) for piece in pieces):
        raise TransformError(f"{destination[:SHOWN]!r} is too long, or has blanks")
    return " ".join(pieces)


def _piece(token: str, stars: list[int], has_wildcards: bool) -> tuple[str, int]:
    """Returns the piece for a token of the destination, and how many wildcards it uses."""
    if token[0] == "$" and re.fullmatch(r"\$[-+]?[0-9]+", token):
        return f"w{_star(token, int(token[1:]), stars)}", 1
    if len(token) <= 4 or not (token.startswith("{{") and token.endswith("}}")):
        return f"={token}", 0
    match = re.fullmatch(_FUNCTION, token)
    if match is None:
        raise TransformError(f'"{token}" is not a function')
    name, arguments = match[1].lower(), match[2].split(",")
    if not has_wildcards and name not in ("random", "partition"):
        raise TransformError(f'"{token}": there is no such wildcard')
    if name == "partition" and not has_wildcards:
        # There are no tokens to go by: it goes by the whole subject, whatever is said.
        for argument in arguments[1:]:
            _number(token, argument)
        arguments = arguments[:1]
    return _call(token, name, arguments, stars)


def _call(token: str, name: str, arguments: list[str], stars: list[int]) -> tuple[str, int]:
    if name == "wildcard" and len(arguments) == 1:
        return f"w{_star(token, _number(token, arguments[0]), stars)}", 1
    if name == "random" and len(arguments) == 1:
        return f"n{_count(token, arguments[0])}", 0
    if name == "partition":
        if len(arguments) > MAX_NUMBERS:
            raise TransformError(f'"{token}" has more than {MAX_NUMBERS} numbers')
        places = [_star(token, _number(token, argument), stars) for argument in arguments[1:]]
        return ",".join([f"p{_count(token, arguments[0])}", *map(str, places)]), len(places)
    if name in OF_TOKEN and len(arguments) == 2:
        place = _star(token, _number(token, arguments[0]), stars)
        return f"{OF_TOKEN[name]}{place},{_count(token, arguments[1])}", 1
    if name == "split" and len(arguments) == 2:
        if not arguments[1] or " " in arguments[1]:
            raise TransformError(f'"{token}": "{arguments[1]}" does not divide')
        return f"s{_star(token, _number(token, arguments[0]), stars)}={arguments[1]}", 1
    raise TransformError(f'"{token}" is not a function, or has another number of arguments')


def _number(token: str, text: str) -> int:
    if re.fullmatch(r" *[-+]?[0-9]{1,10} *", text) is None:
        raise TransformError(f'"{token}": "{text}" is not a number')
    return int(text)


def _count(token: str, text: str) -> int:
    number = _number(token, text)
    if not 0 <= number <= MAX_NUMBER:
        raise TransformError(f'"{token}": {number} is out of range')
    return number


def _star(token: str, number: int, stars: list[int]) -> int:
    """The index of the token that is wildcard `number`; the first wildcard is 1."""
    if not 1 <= number <= len(stars):
        raise TransformError(f'"{token}": there is no wildcard {number}')
    return stars[number - 1]


def by_number(subject: str, numbers: Sequence[int] = ()) -> str:
    """Numbers the wildcards of a pattern: "a.*.b.*" becomes "a.$1.b.$2", or has these numbers, if there are any. Raises
    TransformError."""
    if "*" not in subject:
        return subject
    count = 0
    tokens = []
    for token in tokens_of(subject):
        count += token == "*"
        tokens.append(f"${_numbered(numbers, count, subject)}" if token == "*" else token)
    return ".".join(tokens)


def _numbered(numbers: Sequence[int], count: int, subject: str) -> int:
    if not numbers:
        return count
    if count > len(numbers):
        raise TransformError(f'not all wildcards of "{subject}" are used')
    return numbers[count - 1]


def by_star(subject: str) -> tuple[str, list[int]]:
    """The opposite: "a.$2.b.$1" becomes "a.*.b.*" and 2, 1. A star counts by its order among stars."""
    numbers: list[int] = []
    tokens = []
    stars = 0
    for token in tokens_of(subject):
        stars += token == "*"
        if token == "*" or re.fullmatch(NUMBERED, token):
            numbers.append(stars if token == "*" else int(token[1:]))
            token = "*"
        tokens.append(token)
    return ".".join(tokens), numbers
