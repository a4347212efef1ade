"""Java properties files: lines of `name = value`."""

from __future__ import annotations

import re
from typing import Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import OptionsError

_BETWEEN: Final = re.compile(r"\s*[=:]\s*|\s+")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read(path: str) -> dict[str, str]:
    """Reads a file; of several values of a name the last one counts. Raises OptionsError."""
    try:
        text = named_files.read(path).decode(errors="replace")
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from None
    return parsed(text)


def parsed(text: str) -> dict[str, str]:
    r"""
    >>> parsed("# a\na=1\nb : 2 3 \n c\\=d = e\\\n   f\n! no\nempty=\n")
    {'a': '1', 'b': '2 3 ', 'c=d': 'ef', 'empty': ''}
    """
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip()
        end = _end_of_name(whole)
        between = _BETWEEN.match(whole, end)
        found[_plain(whole[:end])] = _plain(whole[between.end() if between else end :])
    return found


def _end_of_name(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _CONTROLS.get(m[1], m[1]), text)
