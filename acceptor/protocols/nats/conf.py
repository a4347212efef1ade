"""Parses the format of nats-server's configuration file into values that know their file and line.

    port: 4222                  a key, then "=", ":" or a blank, then a value that ends with its line, ";" or ","
    max_payload = 2MB           whole numbers may have a unit: k is 1000, kb, ki and kib are 1024, and so on to e
    cluster { name: here }      a block; the whole file may be in braces, too
    users = [ {user: a} ]       an array
    'x', "x\\n", x, ( ... )      strings; the last kind spans lines, and ends at a line that is only ")"
    include ./more.conf         the keys of another file, as if they were written here
    pass: $PASS                 the value of an earlier key, in this block or one around it, or else of the environment

Accepts and refuses the same files as nats-server, whose reader goes from character to character: tests/nats/ has both
read the same files. The only difference: a key that does not end or has no value, and an unknown unit, are always
errors here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import parse_duration, shown, without_secrets

# Limits for nested blocks and arrays, and for nested includes.
MAX_DEPTH: Final = 64
MAX_FILES: Final = 64

END: Final = ""
BLANKS: Final = " \t"
NEWLINES: Final = "\n\r"
# The characters for which Go's unicode.IsSpace is true.
SPACES: Final = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
SEPARATORS: Final = "=:"
STRING_ENDS: Final = (*BLANKS, *NEWLINES, END, ";", ",", "]", "}")
NUMBER_ENDS: Final = (*BLANKS, *NEWLINES, END, ";", ",", "}")
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
SUFFIXES: Final = "kKmMgGtTpPeE"
UNITS: Final[Mapping[str, int]] = {
    "": 1,
    **{letter: int(1000**power) for power, letter in enumerate("kmgtpe", 1)},
    **{letter + more: int(1024**power) for power, letter in enumerate("kmgtpe", 1) for more in ("b", "i", "ib")},
}
# $2a$... is a bcrypt hash, not a variable.
BCRYPT: Final = "2a$"

COMMENT: Final = r"(?:\#|//)[^\n\r]*"
# Files may have a hundred thousand of such: they are read by patterns, not by character.
_BLANKS_AND_COMMENTS: Final = re.compile(rf"(?:[{BLANKS}]+|{COMMENT})*")
_LINES_AND_COMMENTS: Final = re.compile(rf"(?:[{BLANKS}{NEWLINES}]+|{COMMENT})*")
_SPACES_AND_COMMENTS: Final = re.compile(rf"(?:[{SPACES}]+|{COMMENT})*")
_RUNS: Final = {chars: re.compile(f"[{chars}]*") for chars in (BLANKS, SPACES)}
_BARE_KEY: Final = re.compile(rf"[^{SPACES}{SEPARATORS}]*")
_BARE_PART: Final = re.compile(r"[^ \t\n\r;,\]}'\\]*")
_QUOTED_PART: Final = re.compile(r'[^"\\]*')
_DIGITS: Final = re.compile(r"\d*")
# A key with a plain string, word or subject, as most are in a block, and the end of that. What looks otherwise is read
# by _entry().
_PLAIN_ENTRY: Final = re.compile(
    rf"""(?!(?i:include)[ \t])([A-Za-z][^{SPACES}{SEPARATORS}]*)[ \t]*[=:][ \t]*"""
    r"""(?:"([^"\\\n]*)"|([A-Za-z_*>][^ \t\n\r;,\]}'\\]*))[ \t]*(?:[\n\r;,]|(?=\}))"""
)


class ConfError(ValueError):
    """Has a message of one line: FILE:LINE: what is wrong there."""


Content: TypeAlias = "str | int | float | bool | datetime | list[Value] | dict[str, Value]"


@dataclass(slots=True)
class Value:
    content: Content
    file: str
    line: int
    referenced: bool = field(default=False, compare=False)  # a variable names this key, so an unknown key is no error

    def error(self, text: str) -> ConfError:
        return ConfError(f"{self.file}:{self.line}: {without_secrets(text)}")

    def plain(self) -> object:
        """The content as plain Python values, without files and lines."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in self.content.items()}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        return self.content

    # --- a kind of value, or ConfError: as in nats-server, numbers and strings are not converted ----------------------

    def whole(self) -> int:
        if isinstance(self.content, int) and not isinstance(self.content, bool):
            return self.content
        raise self._other("a whole number")

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        raise self._another_kind("a string")

    def flag(self) -> bool:
        if isinstance(self.content, bool):
            return self.content
        raise self._other("true or false")

    def block(self) -> Block:
        if isinstance(self.content, dict):
            return self.content
        raise self._another_kind("a block")

    def items(self) -> list[Value]:
        if isinstance(self.content, list):
            return self.content
        raise self._another_kind("an array")

    def texts(self) -> list[str]:
        return [item.text() for item in self.items()]

    def duration_ns(self) -> int:
        """A duration in Go's notation, "1m30s"; may be negative."""
        found = parse_duration(self.content) if isinstance(self.content, str) else None
        if found is None:
            raise self._other('a duration such as "250ms"')
        return found

    def _other(self, wanted: str) -> ConfError:
        found = _KINDS.get(type(self.content)) or shown(self.content)
        return self.error(f"{found} is not {wanted}")

    def _another_kind(self, wanted: str) -> ConfError:
        """Does not show the value, which may be a password."""
        return self.error(f"{_KINDS.get(type(self.content)) or _PLAIN[type(self.content)]} is not {wanted}")


Block: TypeAlias = dict[str, Value]
_KINDS: Final[Mapping[type, str]] = {
    dict: "a block", list: "an array", datetime: "a date", float: "a number with a point",
}  # fmt: skip
_PLAIN: Final[Mapping[type, str]] = {str: "a string", int: "a number", bool: "a flag"}


def read(path: str, environment: Mapping[str, str] | None = None) -> Value:
    """Reads a whole file, which is a block. Raises ConfError."""
    environment = os.environ if environment is None else environment
    return _read(path, environment, (), where="")


def _read(path: str, environment: Mapping[str, str], around: tuple[str, ...], where: str) -> Value:
    if path in around or len(around) >= MAX_FILES:
        raise ConfError(f"{where}{path} includes itself")
    try:
        text = named_files.read(path).decode(errors="surrogateescape")
    except OSError as error:
        raise ConfError(f"{where}cannot read {path}: {error.strerror}") from None
    return _Reader(text, path, environment, (*around, path)).whole()


class _Reader:
    """Parses a text in one pass. `_next` consumes a character, `_peek` does not; after the last both return END."""

    def __init__(
        self, text: str, file: str, environment: Mapping[str, str], around: tuple[str, ...], asked: tuple[str, ...] = ()
    ) -> None:
        self._text = text
        self._file = file
        self._environment = environment
        self._around = around  # files being read: this one and those that include it
        self._asked = asked  # variables of the environment being expanded
        self._at = 0
        self._line = 1
        self._blocks: list[Block] = []

    # --- characters -------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        self._line += char == "\n"
        return char

    def _go_to(self, at: int) -> None:
        self._line += self._text.count("\n", self._at, at)
        self._at = at

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Consumes and returns what matches here, perhaps nothing."""
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._go_to(match.end())
        return match[0]

    def _skip(self, chars: str) -> None:
        self._take(_RUNS[chars])

    def _error(self, text: str) -> ConfError:
        return ConfError(f"{self._file}:{self._line}: {text}")

    def _shown(self) -> str:
        char = self._peek()
        return {END: "the end of the file", "\n": "a new line"}.get(char, f'"{char}"')

    # --- the whole file, and blocks ---------------------------------------------------------------------------------

    def whole(self) -> Value:
        top: Block = {}
        self._blocks.append(top)
        while self._keys_of_top(top):
            pass
        return Value(top, self._file, 1)

    def _keys_of_top(self, top: Block) -> bool:
        """Reads keys up to the end or through a group in braces, of which there may be several. False at the end."""
        while True:
            self._take(_SPACES_AND_COMMENTS)
            if self._peek() == END:
                return False
            if self._peek() == "{":
                self._next()
                self._braced(top, 1)
                return True
            if self._peek() == "}" and self._text[self._at + 1 :].strip(SPACES) == "":
                return False
            self._entry(top)
            self._end_of_value("\n\r;,}", "a new line")

    def _braced(self, top: Block, depth: int) -> None:
        """Reads keys of the top level in braces, which need not be closed."""
        while True:
            self._take(_SPACES_AND_COMMENTS)
            if self._peek() == END:
                return
            if self._peek() == "{":
                if depth == MAX_DEPTH:
                    raise self._error("too many braces in each other")
                self._next()
                self._braced(top, depth + 1)
                self._skip_behind_brace()
            elif self._peek() == "}":
                self._next()
                return
            else:
                self._entry(top)
                self._end_of_value("\n\r;,", "a new line", closes="}", may_end=False)

    def _skip_behind_brace(self) -> None:
        self._take(_LINES_AND_COMMENTS)
        if self._peek() in (";", ","):
            self._next()

    def _end_of_value(self, ends: str, meaning: str, closes: str = "", may_end: bool = True) -> None:
        """Consumes the character that ends a value, one of `ends`. One of `closes` ends it too, but is not consumed."""
        self._take(_BLANKS_AND_COMMENTS)
        char = self._peek()
        if (char == END and may_end) or (char != END and char in ends):
            self._next()
        elif char == END or char not in closes:
            raise self._error(f"expected a value to end with {meaning}, and found {self._shown()}")

    def _entry(self, block: Block) -> None:
        """Reads a key and its value, or an include."""
        line = self._line
        quote = self._peek()
        if quote == "/" and len(self._blocks) == 1:
            raise self._error('expected a key, and found "/"')
        if quote in ('"', "'"):
            key = self._quoted_key()
        else:
            key = self._bare_key()
            if key.lower() == "include" and self._peek() not in (*SEPARATORS, END):
                self._include(block)
                return
        self._skip(SPACES)
        if self._peek() == END:
            raise self._error(f'"{key}" has no value')
        if self._peek() in SEPARATORS:
            self._next()
            if len(self._blocks) > 1:
                self._skip(SPACES)
        if len(self._blocks) > 1 and self._peek() in (",", "}", END):
            raise self._error(f'"{key}" has no value')
        value = self._value()
        value.line = line  # where the key is, also of a value that spans lines
        block[key] = value

    def _plain_entry(self, block: Block) -> bool:
        """Reads an entry that is plain, with its end. False: it is not, and nothing was read."""
        match = _PLAIN_ENTRY.match(self._text, self._at)
        if match is None:
            return False
        key, quoted, bare = match.groups()
        content = WORDS.get(bare.lower(), bare) if quoted is None else quoted
        block[key] = self._made(content)
        self._go_to(match.end())
        return True

    def _quoted_key(self) -> str:
        quote, start = self._next(), self._at
        end = self._text.find(quote, start)
        if end < 0:
            self._go_to(len(self._text))
            raise self._error("a quoted key does not end")
        self._go_to(end + 1)
        return self._text[start:end]

    def _bare_key(self) -> str:
        key = self._take(_BARE_KEY)
        if not key:
            raise self._error(f"expected a key, and found {self._shown()}")
        return key

    def _include(self, block: Block) -> None:
        line = self._line
        self._skip(BLANKS)
        quote = self._peek()
        if quote and (quote in "[{(-\\" or quote in NEWLINES or quote.isdecimal()):
            raise self._error(f"expected the name of a file to include, and found {self._shown()}")
        if quote in ('"', "'"):
            self._next()
        start = self._at
        ends = (quote,) if quote in ('"', "'") else (*BLANKS, *NEWLINES, END, ";", "}", "'")
        while self._peek() not in ends:
            if self._next() == END:
                raise self._error("the name of a file to include does not end")
        name = self._text[start : self._at]
        if self._peek() in ('"', "'"):
            self._next()
        included = _read(
            str(Path(self._file).parent / name.lstrip("/")) if self._file else name,
            self._environment,
            self._around,
            where=f"{self._file}:{line}: ",
        )
        assert isinstance(included.content, dict)
        block.update(included.content)

    # --- values -----------------------------------------------------------------------------------------------------

    def _made(self, content: Content) -> Value:
        return Value(content, self._file, self._line)

    def _value(self) -> Value:
        self._skip(BLANKS)
        char = self._peek()
        if char == "[":
            return self._array()
        if char == "{":
            return self._block()
        if char == "'":
            return self._single_quoted()
        if char == '"':
            self._next()
            return self._made(self._text_with_escapes())
        if char == "(":
            return self._lines()
        if char == "-" or char.isdecimal():
            return self._number()
        if char == ".":
            raise self._error("a number must start with a digit")
        if char and char in NEWLINES:
            raise self._error("expected a value, and found a new line")
        return self._bare(self._at)

    def _deeper(self, block: Block) -> None:
        if len(self._blocks) == MAX_DEPTH:
            raise self._error("too many blocks in each other")
        self._blocks.append(block)

    def _block(self) -> Value:
        block: Block = {}
        value = self._made(block)
        self._next()
        self._deeper(block)
        while True:
            self._take(_SPACES_AND_COMMENTS)
            if self._plain_entry(block):
                continue
            char = self._peek()
            if char == "}":
                break
            if char in (END, "]"):
                raise self._error(f"a block does not end: found {self._shown()}")
            self._entry(block)
            self._end_of_value("\n\r;,", '"," or "}"', closes="}", may_end=False)
        self._next()
        self._blocks.pop()
        return value

    def _array(self) -> Value:
        items: list[Value] = []
        value = self._made(items)
        self._next()
        self._deeper({})  # an array has no keys that variables could name
        while True:
            self._take(_SPACES_AND_COMMENTS)
            if self._peek() == "]":
                break
            if self._peek() in (",", END):
                raise self._error(f"expected a value of an array, and found {self._shown()}")
            items.append(self._value())
            self._end_of_value("\n\r,", '"," or "]"', closes="]", may_end=False)
        self._next()
        self._blocks.pop()
        return value

    def _single_quoted(self) -> Value:
        self._next()
        end = self._text.find("'", self._at)
        if end < 0:
            raise self._error("a quoted string does not end")
        value = self._made(self._text[self._at : end])
        self._go_to(end + 1)
        return value

    def _text_with_escapes(self) -> str:
        parts = [self._take(_QUOTED_PART)]
        while (char := self._next()) != '"':
            if char == END:
                raise self._error("a quoted string does not end")
            parts += self._escape(), self._take(_QUOTED_PART)
        return "".join(parts)

    def _escape(self) -> str:
        char = self._next()
        if char == "x":
            digits = self._text[self._at : self._at + 2]
            if re.fullmatch("[0-9A-Fa-f]{2}", digits) is None:
                raise self._error("expected two hexadecimal digits behind \\x")
            self._at += 2
            return bytes.fromhex(digits).decode(errors="surrogateescape")
        if char not in ESCAPES:
            raise self._error('there are \\xXX, \\t, \\n, \\r, \\" and \\\\ and no other escapes')
        return ESCAPES[char]

    def _lines(self) -> Value:
        """Reads a string up to a line that is only ")"."""
        self._next()
        match = re.compile(r"\n\)(?=\n|\Z)").search(self._text, self._at)
        if match is None:
            raise self._error('a string in "(" and ")" does not end')
        value = self._made(self._text[self._at : match.start() + 1])
        self._go_to(match.end())
        return value

    def _bare(self, start: int) -> Value:
        """Reads a value without quotes: a string, true or false, or a variable."""
        parts = [self._text[start : self._at], self._take(_BARE_PART)]
        escaped = False
        while self._peek() == "\\":
            self._next()
            parts += self._escape(), self._take(_BARE_PART)
            escaped = True
        found = "".join(parts)
        if self._peek() == "'":
            self._next()
            return self._made(found)
        if not escaped and found.lower() in WORDS:
            return self._made(WORDS[found.lower()])
        if not escaped and found.startswith("$"):
            return self._variable(found[1:])
        return self._made(found)

    def _number(self) -> Value:
        """Reads a whole number, perhaps with a unit, or one with a point, a date or a string that begins like these."""
        start = self._at
        negative = self._peek() == "-"
        if negative:
            self._next()
        if not self._peek().isdecimal():
            raise self._error(f"expected a digit, and found {self._shown()}")
        self._take(_DIGITS)
        if self._peek() == "-" and not negative:
            return self._date(start)
        if self._peek() == ".":
            return self._point(start)
        suffix = self._at
        if self._peek() and self._peek() in SUFFIXES:
            self._next()
            while self._peek() and self._peek() in "bBiI":
                self._next()
            if self._peek() not in NUMBER_ENDS:
                return self._bare(start)
        elif not negative and self._peek() not in NUMBER_ENDS:
            self._next()
            return self._bare(start)
        return self._made(self._whole(self._text[start:suffix], self._text[suffix : self._at]))

    def _whole(self, digits: str, suffix: str) -> int:
        number = int(digits)
        if not -(1 << 63) <= number < 1 << 63:
            raise self._error(f"{digits} is out of range")
        if suffix.lower() not in UNITS:
            raise self._error(f'"{suffix}" is not a unit')
        product = number * UNITS[suffix.lower()]
        if not -(1 << 63) <= product < 1 << 63:
            raise self._error(f"{digits}{suffix} is out of range")
        return product

    def _date(self, start: int) -> Value:
        found = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z").match(self._text, start)
        try:
            if found is None:
                raise ValueError
            value = self._made(datetime.fromisoformat(found[0]))
        except ValueError:
            raise self._error("a date is written as 2006-01-02T15:04:05Z") from None
        self._at = found.end()
        return value

    def _point(self, start: int) -> Value:
        self._next()
        if not self._peek().isdecimal():
            raise self._error(f"expected a digit behind the point, and found {self._shown()}")
        self._take(_DIGITS)
        if self._peek() != ".":
            return self._made(float(self._text[start : self._at]))
        while self._peek() and (self._peek() in ".:-" or self._peek().isdecimal()):
            self._next()
        return self._made(self._text[start : self._at])

    def _variable(self, name: str) -> Value:
        if name.startswith(BCRYPT):
            return self._made(f"${name}")
        for block in reversed(self._blocks):
            if name in block:
                block[name].referenced = True
                return self._made(block[name].content)
        if name in self._asked:
            raise self._error(f"${name} names itself")
        text = self._environment.get(name)
        if text is None:
            raise self._error(f"${name}: there is no such key before, and no such variable of the environment")
        key = "value"
        asked = (*self._asked, name)
        whole = _Reader(f"{key}={text}", self._file, self._environment, self._around, asked).whole()
        assert isinstance(whole.content, dict)
        if key not in whole.content:
            raise self._error(f"${name} has no value")
        return self._made(whole.content[key].content)
