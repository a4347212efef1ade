"""The kinds of options: which values each accepts, within which limits, and how values are shown.

`parse` checks a value as TOML has read it; `typed` makes such a value of the text after --set. A refused value raises
OptionsError with one line. Durations are written as in Go ("1m30s") and kept as nanoseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from mq_shards.acceptor import named_files

Setting: TypeAlias = int | str | bool | list[str]
Check: TypeAlias = Callable[[str], bool]

MAX_TEXT: Final = 1024  # characters in one text of an option
MAX_TEXTS: Final = 64  # texts in one list

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
YEAR: Final = 8760 * HOUR
# The bytes of the largest message body in any protocol: MAX_BODY_BYTES in csrc/ringbuf/limits.h.
MAX_BODY: Final = 1 << 30
UNITS: Final[Mapping[str, int]] = {"h": HOUR, "m": MINUTE, "s": SECOND, "ms": MS, "us": US, "µs": US, "μs": US, "ns": 1}

# As Go's time.ParseDuration: one or more numbers, each followed by its unit.
_PART: Final = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION: Final = rf"([-+]?)((?:{_PART})+)"


class OptionsError(Exception):
    """One line for the operator: which option, and what is wrong with it."""


class Number(NamedTuple):
    """A whole number."""

    default: int
    minimum: int
    maximum: int
    meaning: str
    power_of_two: bool = False
    clamped: bool = False  # a value that is too large is lowered with a warning, not refused
    shown_default: str = ""

    def typed(self, text: str) -> object:
        return number_or_text(text)

    def parse(self, where: str, value: object, warnings: list[str]) -> int:
        result = whole(where, value)
        if self.clamped and result > self.maximum:
            warnings.append(f"{where}: {result} is too large, {self.maximum} is used")
            return self.maximum
        between(where, result, self.minimum, self.maximum)
        if self.power_of_two and result & (result - 1):
            raise OptionsError(f"{where}: {result} is not a power of two")
        return result

    def limits(self) -> str:
        power = ", a power of two" if self.power_of_two else ""
        return f"default {self.shown_default or self.default}, {self.minimum} to {self.maximum}{power}"


class Duration(NamedTuple):
    """Nanoseconds, written as Go writes them. A number without a unit is refused."""

    default: int
    minimum: int
    maximum: int
    meaning: str

    def typed(self, text: str) -> object:
        return text

    def parse(self, where: str, value: object, warnings: list[str]) -> int:
        result = parse_duration(value) if isinstance(value, str) else None
        if result is None:
            raise OptionsError(f'{where}: {shown(value)} is not a duration such as "250ms" or "1m30s"')
        if not self.minimum <= result <= self.maximum:
            limits = f"{duration_text(self.minimum)} and {duration_text(self.maximum)}"
            raise OptionsError(f"{where}: {value} is not between {limits}")
        return result

    def limits(self) -> str:
        least, most = duration_text(self.minimum), duration_text(self.maximum)
        return f"default {duration_text(self.default)}, {least} to {most}"


class Flag(NamedTuple):
    default: bool
    meaning: str

    def typed(self, text: str) -> object:
        # As Go writes flags.
        return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(text.lower(), text)

    def parse(self, where: str, value: object, warnings: list[str]) -> bool:
        return flag(where, value)

    def limits(self) -> str:
        return f"default {shown(self.default)}, true or false"


class Choice(NamedTuple):
    """One of several words, in any case. `same` maps synonyms to them; TOML's true and false count as words."""

    default: str
    choices: Sequence[str]
    meaning: str
    same: Mapping[str, str] = MappingProxyType({})

    def typed(self, text: str) -> object:
        return text

    def parse(self, where: str, value: object, warnings: list[str]) -> str:
        word = shown(value) if isinstance(value, bool) else value
        if isinstance(word, str):
            word = word.lower()
            word = self.same.get(word, word)
        return choice(where, word, self.choices)

    def limits(self) -> str:
        return f"default {self.default or 'none'}; {alternatives(self.choices)}"


class Text(NamedTuple):
    """A text that passes `check`, or the default; `form` says briefly which texts are accepted."""

    default: str
    meaning: str
    form: str = "a text"
    check: Check = str.isprintable
    shown_default: str = ""
    is_printable: bool = True

    def typed(self, text: str) -> object:
        return text

    def parse(self, where: str, value: object, warnings: list[str]) -> str:
        if value == self.default:
            return self.default
        return _text(where, value, self.form, self.check, is_printable=self.is_printable)

    def limits(self) -> str:
        return f"default {self.shown_default or self.default or 'none'}; {self.form}"


class TextList(NamedTuple):
    """A list of texts that each pass `check`. --set adds one text, or a list as it stands in a file."""

    meaning: str
    form: str
    check: Check

    @property
    def default(self) -> list[str]:
        return []

    def typed(self, text: str) -> object:
        found = _listed(text) if text.startswith("[") else None
        return [text] if found is None else found

    def parse(self, where: str, value: object, warnings: list[str]) -> list[str]:
        if not isinstance(value, list):
            raise OptionsError(f"{where}: {shown(value)} is not a list of {self.form}")
        if len(value) > MAX_TEXTS:
            raise OptionsError(f"{where}: {len(value)} of them, at most {MAX_TEXTS} are possible")
        return [_text(where, text, self.form, self.check) for text in value]

    def limits(self) -> str:
        return f"default none; {self.form}; give it again to add one"


def _listed(text: str) -> object:
    import tomllib  # imported late: not every broker has such a list

    try:
        return tomllib.loads(f"list = {text}")["list"]
    except tomllib.TOMLDecodeError:
        return None


class File(NamedTuple):
    """The path of a readable file, or empty."""

    meaning: str

    @property
    def default(self) -> str:
        return ""

    def typed(self, text: str) -> object:
        return text

    def parse(self, where: str, value: object, warnings: list[str]) -> str:
        if value == "":
            return ""
        name = str(path(where, value))
        try:
            named_files.check(name)
        except OSError as error:
            raise OptionsError(f"{where}: cannot read {name}: {error.strerror}") from None
        return name

    def limits(self) -> str:
        return "default none; a file"


Kind: TypeAlias = Number | Duration | Flag | Choice | Text | TextList | File


# --- reading ----------------------------------------------------------------------------------------------------------


def number_or_text(text: str) -> int | str:
    """The value that TOML would have read, since the command line has only text."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,100}", text) else text


def whole(where: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise OptionsError(f"{where}: {shown(value)} is not a whole number")


def between(where: str, value: int, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise OptionsError(f"{where}: {value} is not between {minimum} and {maximum}")
    return value


def flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionsError(f"{where}: {shown(value)} is not true or false")
    return value


def choice(where: str, value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise OptionsError(f"{where}: {shown(value)} is not one of {', '.join(filter(None, choices))}")
    return value


def path(where: str, value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise OptionsError(f"{where}: {shown(value)} is not a path")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise OptionsError(f"{where}: {shown(value)} cannot be said in this locale: set LC_ALL=C.UTF-8") from None
    return Path(value)


def _text(where: str, value: object, form: str, check: Check, *, is_printable: bool = True) -> str:
    is_text = isinstance(value, str) and len(value) <= MAX_TEXT and (value.isprintable() or not is_printable)
    if not isinstance(value, str) or not is_text or not check(value):
        raise OptionsError(f"{where}: {shown(value)} is not {form}")
    return value


def parse_duration(text: str) -> int | None:
    """Nanoseconds, or None if the text is not a duration as Go writes it.

    >>> parse_duration("1m30.5s")
    90500000000
    """
    if text in ("0", "+0", "-0"):
        return 0
    match = re.fullmatch(_DURATION, text) if len(text) <= MAX_TEXT else None
    if match is None:
        return None
    from fractions import Fraction  # slow to load, and most starts give no duration

    # Exact: 0.1 s must not become 99999999 ns.
    total = sum(Fraction(number) * UNITS[unit] for number, unit in re.findall(_PART, match[2]))
    return -int(total) if match[1] == "-" else int(total)


def duration_text(ns: int) -> str:
    """A short text that parse_duration reads back as `ns`.

    >>> duration_text(90_000_000_000)
    '1m30s'
    """
    parts: list[str] = []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, ns = divmod(ns, UNITS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


# --- checks of texts --------------------------------------------------------------------------------------------------


def is_host(text: str) -> bool:
    """Whether this is a host name or an address; IPv6 without brackets."""
    return re.fullmatch(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?", text) is not None


def is_mode(text: str) -> bool:
    """Whether this is an octal mode as for chmod, with permission bits only."""
    return re.fullmatch(r"0?[0-7]{3}", text) is not None


def is_owner(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_.$-]+(:[A-Za-z0-9_.$-]+)?|:[A-Za-z0-9_.$-]+", text) is not None


def is_address(text: str) -> bool:
    """Whether this is HOST:PORT; IPv6 in brackets."""
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", text)
    return match is not None and is_host(match[1] or match[2]) and 1 <= int(match[3]) <= 65535


def is_url_or_address(text: str) -> bool:
    """Whether this is HOST:PORT, or an http or https URL."""
    if "://" not in text:
        return is_address(text)
    match = re.fullmatch(r"https?://(\[[^\[\]]+\]|[^:/?#\[\]@\s]+)(:[0-9]{1,5})?([/?][^\s#]*)?", text)
    return match is not None and is_host(match[1].strip("[]")) and 0 < int((match[2] or ":80")[1:]) <= 65535


# --- showing ----------------------------------------------------------------------------------------------------------


_PASSWORD: Final = re.compile(r'(//[^/@:"\s]*:)[^"\s]*@')
_SEED: Final = re.compile(r"\bS[ACNOUX][A-Z2-7]{56}\b")  # the secret seed of an nkey, as base32


def without_secrets(text: str) -> str:
    """Hides passwords and seeds: more people read an error message than the file with the value.

    >>> without_secrets('"http://me:pa:ss@host:x" is no URL'), without_secrets("http://host:80/a")
    ('"http://me:xxxxx@host:x" is no URL', 'http://host:80/a')
    """
    return _SEED.sub("[REDACTED]", _PASSWORD.sub(r"\1xxxxx@", text))


def shown(value: object) -> str:
    """The value as a message shows it: on one line, without secrets."""
    if isinstance(value, str):
        value = without_secrets(value)
        return f'"{value if value.isprintable() else value.encode("unicode_escape").decode()}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def alternatives(words: Sequence[str]) -> str:
    *first, last = [word for word in words if word]
    return f"{', '.join(first)} or {last}" if first else last
