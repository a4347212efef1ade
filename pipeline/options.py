"""The options of the data source `mqshards`. What Spark's Kafka source has too keeps its name and meaning."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import orjson
from mq_shards.pipeline.client import DEFAULT_PORT, Address, Tls
from mq_shards.shards.reader_names import ReadersError, check_name

DEFAULT_TIMEOUT_MS: Final = 120_000
# In JSON, as in Kafka's: -2 is the earliest offset, -1 the latest.
EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
# The names of each setting; error messages use the first.
_TOPICS: Final = ("topic", "topics", "subscribe")
_PATTERN: Final = ("topicPattern", "subscribePattern")
_ASSIGN: Final = "assign"
_ID: Final = re.compile("[0-9a-f]{32}")  # of a broker
TLS: Final = ("tlsCa", "tlsCert", "tlsKey")
TOKEN: Final = ("token", "tokenFile")
TOKEN_IN_ENVIRONMENT: Final = "MQ_SHARDS_TOKEN"
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "subscription",
)  # fmt: skip
_DEFAULT_TRIGGER_DELAY: Final = "15m"
_UNITS_S: Final = {"us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BOUNDS: Final = ("Offsets", "Timestamp", "OffsetsByTimestamp", "OffsetsByTimestampStrategy")
_OPTIONS: Final = (
    "brokers", *_TOPICS, *_PATTERN, _ASSIGN,
    *(f"{which}{what}" for which in ("starting", "ending") for what in _BOUNDS),
    "minPartitions", "maxRecordsPerPartition", *_STREAM_ONLY, "failOnDataLoss", "pollTimeoutMs", *TLS,
    *TOKEN,
)  # fmt: skip
# What is called otherwise in Spark's Kafka source; difflib would not find it.
_OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "brokers", "kafka.group.id": "subscription", "groupidprefix": "subscription",
    "fetchoffset.numretries": "pollTimeoutMs", "fetchoffset.retryintervalms": "pollTimeoutMs",
}  # fmt: skip
# What nobody has to ask for here.
_ANYWAY: Final = {"includeheaders": "rows have headers anyway, in attributes"}
_BOOLEANS: Final = {"true": True, "false": False}
_ASKED_BYTES: Final = 2048  # most bytes of names in a request


log = logging.getLogger(__name__)


class OptionError(ValueError):
    """An option is missing, malformed or contradicts another."""


@dataclass(frozen=True)
class Selection:
    """Which topics are read: `names`, or all whose whole name matches. `of`: their brokers, by address or id."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    of: Mapping[str, tuple[str, ...]] | None = None

    def has(self, topic: str) -> bool:
        return self.pattern.fullmatch(topic) is not None if self.pattern else topic in self.names

    def takes(self, address: Address, broker: str, topic: str) -> bool:
        return self.of is None or any(which in (str(address), broker) for which in self.of[topic])

    @property
    def asked(self) -> tuple[tuple[str, ...], str]:
        """Names and prefix to ask a broker with; its reply may have other topics too."""
        if self.pattern is not None:
            return (), literal_prefix(self.pattern.pattern)
        short = len(",".join(self.names)) <= _ASKED_BYTES and not any("," in name for name in self.names)
        return (self.names if short else ()), ""


def literal_prefix(pattern: str) -> str:
    """Returns a prefix of all names that a pattern can match, as far as that is plain to see."""
    if "|" in pattern or "(?" in pattern:
        return ""
    prefix = ""
    for match in re.finditer(r"(?:([\w/:-])|\\([^\w])|\[([^\]\\^])\])([?*+{]?)|.", pattern, re.ASCII | re.DOTALL):
        letter = match[1] or match[2] or match[3]
        if not letter or match[4]:
            break
        prefix += letter
    return prefix


@dataclass(frozen=True)
class AtSeq:
    """A seq (or EARLIEST, or LATEST) for each topic, or one for all."""

    all: int = EARLIEST
    by_topic: Mapping[str, int] | None = None


@dataclass(frozen=True)
class AtTime:
    """The first message at or after a time, in ms since 1970, for each topic or for all. `or_latest`: if there is none,
    the place after the last message; otherwise that is an error."""

    all: int = 0
    by_topic: Mapping[str, int] | None = None
    or_latest: bool = False


Bound: TypeAlias = AtSeq | AtTime


@dataclass(frozen=True)
class ReadOptions:
    brokers: tuple[Address, ...]
    selection: Selection
    starting: Bound
    ending: Bound
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    fail_on_data_loss: bool
    subscription: str | None
    timeout_s: float

    @staticmethod
    def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Ignores the case of names. Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        check_known(options, _OPTIONS)
        if not streaming:
            _warn_of_ignored(options)
        if streaming and (found := [name for name in given if name.startswith("ending")]):
            raise OptionError(f"{found[0]}: a stream has no end")
        starting = _bound(given, "starting", AtSeq(LATEST if streaming else EARLIEST))
        ending = _bound(given, "ending", AtSeq(LATEST))
        if not streaming and _mentions(starting, LATEST):
            raise OptionError("startingOffsets: latest would read nothing in a batch")
        if _mentions(ending, EARLIEST):
            raise OptionError("endingOffsets: earliest would read nothing")
        most, least = parse_positive(given, "maxOffsetsPerTrigger"), parse_positive(given, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
        brokers, selection = parse_brokers(given), _selection(given)
        _check_assigned(selection, brokers)
        return ReadOptions(
            brokers=brokers,
            selection=selection,
            starting=starting,
            ending=ending,
            min_partitions=parse_positive(given, "minPartitions"),
            max_records_per_partition=parse_positive(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=most,
            max_bytes_per_trigger=parse_positive(given, "maxBytesPerTrigger"),
            min_offsets_per_trigger=least,
            max_trigger_delay_s=_duration(given, "maxTriggerDelay", _DEFAULT_TRIGGER_DELAY),
            fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
            subscription=_subscription(given),
            timeout_s=(parse_positive(given, "pollTimeoutMs") or DEFAULT_TIMEOUT_MS) / 1000,
        )


def check_known(given: Iterable[str], known: Sequence[str]) -> None:
    """Raises OptionError for an unknown option: one that is misspelt would silently do nothing."""
    names = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in names:
            near = [_OF_KAFKA.get(name.lower(), ""), *difflib.get_close_matches(name.lower(), names, 1, 0.5)]
            meant = next((names[found.lower()] for found in near if found.lower() in names), "")
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            hint = _ANYWAY.get(name.lower(), hint)
            raise OptionError(f"{name}: there is no such option; {hint}")


def _warn_of_ignored(given: Iterable[str]) -> None:
    for name in given:
        if name.lower() in {known.lower() for known in _STREAM_ONLY}:
            log.warning("option %s is of streams; a batch does without", name)


def connection_of(options: Mapping[str, str]) -> tuple[Address, ...]:
    """Returns the brokers, from options with names as they were given."""
    return parse_brokers({name.lower(): value for name, value in options.items()})


def parse_brokers(given: Mapping[str, str]) -> tuple[Address, ...]:
    texts = [text for text in given.get("brokers", f"127.0.0.1:{DEFAULT_PORT}").split(",") if text.strip()]
    try:
        found = tuple(dict.fromkeys(Address.parse(text) for text in texts))
    except ValueError as error:
        raise OptionError(f"brokers: {error}") from None
    if not found:
        raise OptionError("brokers: there is none; host:port,... is wanted")
    token, tls = _token(given), _tls(given)
    found = tuple(replace(address, token=token) for address in found)
    return tuple(replace(address, tls=tls) if address.tls is not None else address for address in found)


def _token(given: Mapping[str, str]) -> str:
    """Returns the token, "" if there is none. It is read where a query is planned; tasks get it with the address."""
    if (path := given.get("tokenfile")) is None:
        found = given.get("token", os.environ.get(TOKEN_IN_ENVIRONMENT, ""))
    else:
        try:
            found = Path(path).read_text().partition("\n")[0]
        except OSError as error:
            raise OptionError(f"tokenFile: cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise OptionError(f"tokenFile: cannot read {path}: {error}") from None
    found = found.strip()
    if not found.isascii() or not found.isprintable():
        raise OptionError("token: letters, digits and the like are wanted")
    return found


def _tls(given: Mapping[str, str]) -> Tls:
    tls = Tls(*(given.get(name.lower(), "") for name in TLS))
    if tls.key and not tls.cert:
        raise OptionError("tlsKey: tlsCert is wanted with it")
    for name, path in zip(TLS, (tls.ca, tls.cert, tls.key), strict=True):
        try:
            if path:
                Path(path).open("rb").close()
        except OSError as error:
            raise OptionError(f"{name}: cannot read {path}: {error.strerror}") from None
    return tls


def _selection(given: Mapping[str, str]) -> Selection:
    names = [name for name in (*_TOPICS, *_PATTERN, _ASSIGN) if name.lower() in given]
    if len(names) != 1:
        said = f"{' and '.join(names)} contradict each other" if names else "none is given"
        raise OptionError(f"one of topic, topics, topicPattern or assign is wanted: {said}")
    name, value = names[0], given[names[0].lower()]
    if name == _ASSIGN:
        return _assigned(value)
    if name in _PATTERN:
        try:
            return Selection(pattern=re.compile(value))
        except re.error as error:
            raise OptionError(f"{name}: {error}") from None
    return Selection(names=names_of(name, value))


def names_of(name: str, value: str) -> tuple[str, ...]:
    """Parses topics, as `a,b` or, since a name may have a comma in it, as a list in JSON. Raises OptionError."""
    topics = _list(name, value) if value.lstrip().startswith("[") else [topic.strip() for topic in value.split(",")]
    if not topics or not all(topics):
        raise OptionError(f"{name}: {value!r} names no topic")
    return tuple(dict.fromkeys(topics))


def _assigned(value: str) -> Selection:
    problem = OptionError(f'{_ASSIGN}: {value!r} should be brokers by topic, as {{"orders": ["a:4180"]}}')
    try:
        found = orjson.loads(value)
    except ValueError:
        raise problem from None
    if not isinstance(found, dict) or not found:
        raise problem
    of: dict[str, tuple[str, ...]] = {}
    for topic, brokers in found.items():
        if not topic or not isinstance(brokers, list) or not brokers or not all(isinstance(b, str) for b in brokers):
            raise problem
        of[topic] = tuple(_plain(broker) for broker in brokers)
    return Selection(names=tuple(of), of=of)


def _plain(broker: str) -> str:
    """Returns an address in its printed form, and an id unchanged."""
    try:
        return broker if _ID.fullmatch(broker) else str(Address.parse(broker))
    except ValueError as error:
        raise OptionError(f"{_ASSIGN}: {error}") from None


def _check_assigned(selection: Selection, brokers: tuple[Address, ...]) -> None:
    """Raises OptionError for an address that is not a broker's: its topic would be empty for ever. An id may be that of
    a broker that is left out for now."""
    named = {which for of in (selection.of or {}).values() for which in of if not _ID.fullmatch(which)}
    if unknown := sorted(named - {str(address) for address in brokers}):
        raise OptionError(f"{_ASSIGN}: {', '.join(unknown)} is not among brokers, {', '.join(map(str, brokers))}")


def _list(name: str, value: str) -> list[str]:
    try:
        found = orjson.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(topic, str) for topic in found):
        raise OptionError(f"{name}: {value!r} is no list of names")
    return found


def _bound(given: Mapping[str, str], which: str, default: Bound) -> Bound:
    """Follows Kafka's order of precedence."""
    strategy = f"{which}OffsetsByTimestampStrategy"
    by_strategy = {"error": False, "latest": True}
    # If the end is a time in the future, a range ends where its topic does, as in Kafka's source.
    or_latest = which == "ending" or by_strategy.get(given.get(strategy.lower(), "error"))
    if or_latest is None:
        raise OptionError(f"{strategy}: error or latest is wanted")
    if (one := given.get(f"{which}timestamp")) is not None:
        return AtTime(all=_milliseconds(f"{which}Timestamp", one), or_latest=or_latest)
    name = f"{which}OffsetsByTimestamp"
    if (text := given.get(name.lower())) is not None:
        return AtTime(by_topic=_by_topic(name, text, {}, 0), or_latest=or_latest)
    name = f"{which}Offsets"
    if (text := given.get(name.lower())) is None:
        return default
    word = _WORDS.get(text.strip().lower())
    return AtSeq(word) if word is not None else AtSeq(by_topic=_by_topic(name, text, _WORDS, EARLIEST))


def parse_bound(name: str, text: str, kind: type[Bound]) -> Bound:
    """Parses a number or, for seqs, a word, for all topics; or JSON of these by topic. Raises OptionError."""
    words = _WORDS if kind is AtSeq else {}
    number = words.get(text.strip().lower(), int(text) if text.strip().isdecimal() else None)
    if number is None and not text.lstrip().startswith("{"):
        expected = "no seq, nor earliest or latest" if kind is AtSeq else "no number of milliseconds since 1970"
        raise OptionError(f"{name}: {text!r} is {expected}, nor JSON of these by topic")
    if kind is AtTime:
        by_time = None if number is not None else _by_topic(name, text, {}, 0)
        return AtTime(all=number or 0, by_topic=by_time, or_latest=True)
    by_seq = None if number is not None else _by_topic(name, text, _WORDS, EARLIEST)
    return AtSeq(all=EARLIEST if number is None else number, by_topic=by_seq)


def _milliseconds(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"{name}: {text!r} is no number of milliseconds since 1970")
    return int(text)


def _by_topic(name: str, text: str, words: Mapping[str, int], least: int) -> dict[str, int]:
    problem = OptionError(f'{name}: {text!r} should be earliest, latest or JSON by topic, as {{"orders": 17}}')
    try:
        found = orjson.loads(text)
    except ValueError:
        raise problem from None
    if not isinstance(found, dict):
        raise problem
    result: dict[str, int] = {}
    for topic, value in found.items():
        number = words.get(value) if isinstance(value, str) else value
        if type(number) is not int or number < least:
            raise problem
        result[topic] = number
    return result


def _mentions(bound: Bound, word: int) -> bool:
    if isinstance(bound, AtTime):
        return False
    return bound.all == word if bound.by_topic is None else word in bound.by_topic.values()


def parse_positive(given: Mapping[str, str], name: str) -> int | None:
    if (text := given.get(name.lower())) is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise OptionError(f"{name}: {text!r} is no positive number")
    return int(text)


def _subscription(given: Mapping[str, str]) -> str | None:
    name = given.get("subscription") or None
    if name is not None:
        try:
            check_name(name)
        except ReadersError as error:
            raise OptionError(f"subscription: {name!r}: {error}") from None
    return name


def _duration(given: Mapping[str, str], name: str, default: str) -> float:
    text = given.get(name.lower(), default)
    # A number alone is so many ms, as in Spark's Kafka source.
    return int(text) / 1000 if text.strip().isdecimal() else duration_s(name, text)


def duration_s(name: str, text: str) -> float:
    """Raises OptionError."""
    text = text.strip().lower()
    match = re.fullmatch(rf"(\d+)\s*({'|'.join(_UNITS_S)})", text)
    if match is None:
        raise OptionError(f"{name}: {text!r} is no duration, such as 90s or 15m")
    return int(match[1]) * _UNITS_S[match[2]]


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    found = default if text is None else _BOOLEANS.get(text.strip().lower())
    if found is None:
        raise OptionError(f"{name}: {text!r} is neither true nor false")
    return found
