"""Reads and checks the tables [users.NAME] and [groups.NAME] of a TOML file. An error is one line that names the file's
line.

TOML's parser does not keep line numbers, so the line of a table or key is searched for in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mq_shards.acceptor import named_files
from mq_shards.acceptor.access.hashes import HASHED_PASSWORD, HASHED_TOKEN
from mq_shards.acceptor.access.rights import RIGHTS, Patterns, User, Users
from mq_shards.acceptor.option_kinds import OptionsError, shown

USERS: Final = "users"
GROUPS: Final = "groups"
EVERYBODY: Final = "everybody"
MAX_USERS: Final = 10_000
MAX_GROUPS: Final = 1000
MAX_ENTRIES: Final = 1000  # in one list
MAX_PATTERN: Final = 512  # characters
NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
NAME_FORM: Final = "has 1 to 64 letters, digits, _ . @ + and -, and begins with a letter, digit or _"
PROOFS: Final = ("password", "tokens", "certificates")

_HEADER: Final = r"\s*\[([^\[\]]+)\]\s*(?:#.*)?"


class _WrongError(Exception):
    def __init__(self, table: str, key: str, text: str) -> None:
        super().__init__(text)
        self.table = table
        self.key = key


class _Table(NamedTuple):
    """A table of the file, with its full name there."""

    name: str
    content: Mapping[str, object]

    def wrong(self, key: str, text: str) -> _WrongError:
        return _WrongError(self.name, key, text)

    def only(self, *keys: str) -> None:
        for key in self.content:
            if key not in keys:
                raise self.wrong(key, f"{shown(key)} is not known in [{self.name}] (there are: {', '.join(keys)})")

    def text(self, key: str) -> str:
        found = self.content.get(key, "")
        if not isinstance(found, str):
            raise self.wrong(key, f"{key} is not a text")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.content.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise self.wrong(key, f"{key} is not a list of texts")
        if len(found) > MAX_ENTRIES:
            raise self.wrong(key, f"{key} has {len(found)} entries, at most {MAX_ENTRIES} are possible")
        return tuple(found)

    def patterns(self, right: str) -> tuple[str, ...]:
        for text in self.texts(right):
            if len(text) > MAX_PATTERN or not text.isprintable() or "*" in text[:-1]:
                form = "neither a topic's name nor the beginning of names with * behind it"
                raise self.wrong(right, f"{shown(text)} is {form}")
        return self.texts(right)


def read_file(path: str) -> Users:
    """Raises OptionsError."""
    import tomllib  # most brokers have no such file

    try:
        text = named_files.read(path).decode("utf-8-sig")
    except OSError as error:
        raise OptionsError(f"users: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionsError(f"users: {path} is not TOML: it is not UTF-8") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionsError(f"users: {path} is not TOML: {error}") from None
    for key in content:
        if key not in (USERS, GROUPS):
            raise OptionsError(f'{_place(path, text, key, "")}: "{key}" is neither [{USERS}.NAME] nor [{GROUPS}.NAME]')
    return read_tables(path, text, content)


def read_tables(path: str, text: str, content: Mapping[str, Any]) -> Users:
    """Makes the users of a file's whole content, which may have other tables too. Raises OptionsError."""
    try:
        users = Users(_users(content))
    except _WrongError as error:
        raise OptionsError(f"{_place(path, text, error.table, error.key)}: {error}") from None
    if not users.by_name:  # nobody could do anything; and a file that is being written is empty at first
        raise OptionsError(f"users: {path} has no [{USERS}.NAME]")
    return users


def _users(content: Mapping[str, Any]) -> list[User]:
    groups = {table.name.partition(".")[2]: table for table in _tables(content, GROUPS, MAX_GROUPS)}
    for group in groups.values():
        group.only(*RIGHTS)
    found = []
    owners: dict[str, str] = {}  # the user's name by token or certificate
    for table in _tables(content, USERS, MAX_USERS):
        found.append(_user(table, groups))
        for key, ones in (("tokens", found[-1].tokens), ("certificates", found[-1].certificates)):
            for one in ones:
                other = owners.setdefault(f"{key}:{one}", found[-1].name)
                if other != found[-1].name:
                    raise table.wrong(key, f"users {other} and {found[-1].name} have one of the {key} in common")
    return found


def _tables(content: Mapping[str, Any], kind: str, most: int) -> list[_Table]:
    tables = content.get(kind, {})
    if not isinstance(tables, dict):
        raise _WrongError("", kind, f"{kind} are tables, write [{kind}.NAME]")
    if len(tables) > most:
        raise _WrongError(kind, "", f"there are {len(tables)} {kind}, at most {most} are possible")
    for name, one in tables.items():
        if not isinstance(one, dict):
            raise _WrongError(kind, name, f"{name} is not a table, write [{kind}.{name}]")
        if re.fullmatch(NAME, name) is None:
            raise _WrongError(f"{kind}.{name}", "", f"{shown(name)} is no name: it {NAME_FORM}")
    return [_Table(f"{kind}.{name}", one) for name, one in tables.items()]


def _user(table: _Table, groups: Mapping[str, _Table]) -> User:
    table.only(*PROOFS, "groups", *RIGHTS)
    password, tokens = table.text("password"), table.texts("tokens")
    if password and re.fullmatch(HASHED_PASSWORD, password) is None:
        raise table.wrong("password", "password is not hashed: mq-shards password makes what stands here")
    if not all(re.fullmatch(HASHED_TOKEN, token) for token in tokens):
        raise table.wrong("tokens", "a token is not hashed: mq-shards token makes what stands here")
    named = table.texts("groups")
    for name in named:
        if name not in groups:
            raise table.wrong("groups", f"there is no [{GROUPS}.{name}]")
    of_groups = [groups[name] for name in dict.fromkeys((*named, EVERYBODY)) if name in groups]
    rights = {
        right: Patterns(tuple(dict.fromkeys(text for one in (table, *of_groups) for text in one.patterns(right))))
        for right in RIGHTS
    }
    return User(table.name.partition(".")[2], password, tokens, table.texts("certificates"), rights)


# --- the line of an error ---------------------------------------------------------------------------------------------


def _place(path: str, text: str, table: str, key: str) -> str:
    """FILE:LINE, or FILE if the line is not found."""
    number = _line_of(text.splitlines(), table, key)
    return f"{path}:{number}" if number else path


def _line_of(lines: list[str], table: str, key: str) -> int:
    """The line of a table or of a key in it; 0 if it is written in an unusual way."""
    inside = "" if table else None
    at_table = 0
    is_set = re.compile(rf"\s*[\"']?{re.escape(key or table)}[\"']?\s*=")
    for number, line in enumerate(lines, 1):
        header = re.fullmatch(_HEADER, line)
        if header is not None:
            inside = ".".join(part.strip().strip("\"'") for part in header[1].split("."))
            if inside == table and not at_table:
                at_table = number
                if not key:
                    return number
        elif (inside or "") == (table if key else "") and is_set.match(line):
            return number
    return at_table
