"""How many columns of a terminal a text takes: two for each wide character of East Asia, none for a combining mark."""

from __future__ import annotations

import unicodedata


def columns(text: str) -> int:
    """
    >>> [columns(text) for text in ("häß", "注文", "e\\u0301te")]
    [3, 4, 3]
    """
    return len(text) if text.isascii() else sum(map(_of_one, text))


def first(text: str, room: int) -> str:
    """As much of the text as `room` columns hold, with the marks of its last character.

    >>> [first("注文書", room) for room in (0, 1, 4, 5, 9)], first("e\\u0301te", 1) == "e\\u0301"
    (['', '', '注文', '注文', '注文書'], True)
    """
    if text.isascii():
        return text[:room]
    for at, one in enumerate(text):
        room -= _of_one(one)
        if room < 0:
            return text[:at]
    return text


def padded(text: str, width: int) -> str:
    """The text, with spaces behind it up to `width` columns.

    >>> padded("注文", 6)
    '注文  '
    """
    return text + " " * (width - columns(text))


def _of_one(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
