"""The arguments of mq-pipeline and of each of its jobs.

Imports nothing that takes long: help and a wrong argument are answered without loading Spark.
"""

from __future__ import annotations

import argparse
import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mq_shards.pipeline.fields import FORMATS, Fields
from mq_shards.pipeline.standing_back import NICENESS
from mq_shards.pipeline.table_formats import FORMATS as TABLE_FORMATS
from mq_shards.pipeline.table_formats import PARQUET

if TYPE_CHECKING:
    from mq_shards.pipeline.client import Address

COMPACT_MIB: Final = 16
EVERY_S: Final = 10.0
MOST_AGE: Final = 100_000  # of --drop-older, in days or hours
MOST: Final = 1e9  # seconds, or messages a second
MOST_MESSAGES: Final = (1 << 63) - 1
_MASTER: Final = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\]|-cluster\[.+\])?|(spark|k8s)://.+|yarn")
_AGO: Final = re.compile(r"(\d+)\s*([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_common(command: argparse.ArgumentParser) -> None:
    where = "where Spark runs (default: local[*])"
    command.add_argument("--master", default=argparse.SUPPRESS, type=master, help=where)
    nice = f"with a local master: stand back behind other programs by so much, as nice(1) (default: {NICENESS})"
    command.add_argument("--nice", default=argparse.SUPPRESS, metavar="N", type=niceness, help=nice)
    brokers = "the brokers' http listeners (default: 127.0.0.1:4180)"
    places = "[https://]HOST:PORT,..."
    command.add_argument("--brokers", default=argparse.SUPPRESS, metavar=places, type=addresses, help=brokers)
    for name, what in (("ca", "authorities to believe (https)"), ("cert", "a certificate to show"), ("key", "its key")):
        command.add_argument(f"--{name}", default=argparse.SUPPRESS, metavar="FILE", type=given, help=what)
    serve = "serve Prometheus metrics there while the job runs"
    command.add_argument("--metrics", default=argparse.SUPPRESS, metavar="[HOST:]PORT", type=given, help=serve)
    file = "write Prometheus metrics to a file, whenever something has changed"
    command.add_argument("--metrics-file", default=argparse.SUPPRESS, metavar="FILE", type=path, help=file)
    lineage = "send OpenLineage events there, or write them to a file, a line each"
    command.add_argument("--lineage", default=argparse.SUPPRESS, metavar="URL|FILE", type=given, help=lineage)
    token = "a file with our token (default: $MQ_SHARDS_TOKEN is the token)"
    command.add_argument("--token-file", default=argparse.SUPPRESS, metavar="FILE", type=given, help=token)


def of_archive(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="these topics")
    all_that = "topics whose whole name matches, those to come too"
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help=all_that)
    command.add_argument("--to", required=True, metavar="DIR", type=given, help="where the archive is")
    so_far = "how far it is (default: _checkpoint in the archive)"
    command.add_argument("--checkpoint", metavar="DIR", type=given, help=so_far)
    first = "where the first run begins (default: earliest)"
    command.add_argument("--from", dest="start", default="earliest", choices=["earliest", "latest"], help=first)
    every = "go on for ever, with a micro-batch so often (default: end with what is there)"
    command.add_argument("--every", metavar="SECONDS", type=above_zero, help=every)
    command.add_argument("--max-messages", metavar="N", type=count, help="in a micro-batch at most")
    holds = "under which the broker keeps what is not archived (default: made from DIR)"
    command.add_argument("--subscription", metavar="NAME", type=reader, help=holds)
    small = f"files of less than so many MiB become larger ones (default: {COMPACT_MIB}; 0: none)"
    command.add_argument("--compact-below", metavar="MIB", type=mebibytes, default=COMPACT_MIB, help=small)
    command.add_argument("--allow-data-loss", action="store_true", help="go on where messages are gone or corrupt")


def of_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="archive", required=True, metavar="DIR", type=given, help="the archive")
    topics = command.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="only these topics")
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help="only topics whose whole name matches")
    since = "only what was published at or after it (ISO 8601, UTC)"
    command.add_argument("--since", metavar="TIME", type=moment, help=since)
    command.add_argument("--until", metavar="TIME", type=moment, help="only what was published before it")
    target = command.add_mutually_exclusive_group()
    one = "all into this topic (default: those they came from)"
    target.add_argument("--to-topic", metavar="TOPIC", type=given, help=one)
    target.add_argument("--prefix", metavar="TEXT", type=given, help="into topics whose names begin with it")
    command.add_argument("--rate", metavar="N", type=above_zero, help="messages a second (default: as many as go)")
    kept = "where the plan is kept (default: _replay in the archive)"
    command.add_argument("--state", metavar="DIR", type=given, help=kept)
    command.add_argument("--again", action="store_true", help="from the beginning, though it was replayed before")


def of_init(command: argparse.ArgumentParser) -> None:
    """Adds the options that are written into a new project, or hold for one run."""
    topics = command.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="these topics")
    all_that = "topics whose whole name matches, those to come too"
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help=all_that)
    command.add_argument("--dir", required=True, metavar="DIR", type=path, help="where the project is")
    kinds = "what topics whose whole name matches hold: json, text, binary, or auto (default); others are bad messages"
    command.add_argument("--format", metavar="REGEX=FORMAT", type=topic_format, action="append", default=[], help=kinds)
    command.add_argument("--max-messages", metavar="N", type=count, help="in a micro-batch at most (default: 1000000)")
    of = "of a new project's tables (default: parquet); the others want a package of theirs, built for this Spark"
    command.add_argument("--table-format", choices=[PARQUET, *TABLE_FORMATS], help=of)
    keep = "how long raw messages are kept after they were read, such as 30d or 12h (default: for ever)"
    command.add_argument("--bronze-retention", metavar="TIME", type=duration, help=keep)
    command.add_argument("--allow-data-loss", action="store_true", help="go on where messages are gone or corrupt")
    more = "a setting of Spark, or of the project (spark.mqshards...)"
    command.add_argument("--conf", metavar="KEY=VALUE", type=setting, action="append", default=[], help=more)


def of_run(command: argparse.ArgumentParser) -> None:
    of_init(command)
    command.add_argument("--show", action="store_true", help="print the gold tables at the end of each run")
    way = command.add_mutually_exclusive_group()
    way.add_argument("--dry-run", action="store_true", help="only see whether the project is sound")
    way.add_argument("--continuous", action="store_true", help="go on for ever: run again whenever something has come")
    every = f"with --continuous: so often at most (default: {EVERY_S:g})"
    command.add_argument("--every", metavar="SECONDS", type=above_zero, default=EVERY_S, help=every)
    everything = command.add_mutually_exclusive_group()
    anew = "empty all tables and begin again at the earliest"
    everything.add_argument("--full-refresh-all", action="store_true", help=anew)
    only = "bring only these tables up to date; may be repeated"
    for name, text in (("--refresh", only), ("--full-refresh", "empty only these tables and begin them again")):
        command.add_argument(name, metavar="TABLE,...", type=tables, action="extend", default=[], help=text)


def of_report(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="these topics (default: all)")
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help="topics whose whole name matches")
    command.add_argument("--to", required=True, metavar="DIR", type=path, help="where tables and plots go")
    when = "2026-01-31T12:00 (UTC unless it says otherwise), or 90s, 30m, 12h, 7d ago"
    command.add_argument("--since", metavar="TIME", type=time, help=f"published at or after: {when}")
    command.add_argument("--until", metavar="TIME", type=time, help="published before")
    channels = "an nsq-http listener to ask for the backlog of channels; may be repeated"
    command.add_argument("--nsq-http", metavar="HOST:PORT", type=address, action="append", default=[], help=channels)
    tubes = "a beanstalk listener to ask for the backlog of tubes; may be repeated"
    command.add_argument("--beanstalk", metavar="HOST:PORT", type=address, action="append", default=[], help=tubes)
    talkers = "so many talkers of each topic (default: 10)"
    command.add_argument("--top", metavar="N", type=count, default=10, help=talkers)
    usual = Fields()
    for name in ("time", "source"):
        fields = ",".join(getattr(usual, name))
        text = f"JSON fields with an event's {name} (default: {fields})"
        command.add_argument(f"--{name}-fields", metavar="F,...", default=fields, help=text)


def of_explain(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="these topics")
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help="topics whose whole name matches")
    command.add_argument("--where", metavar="SQL", type=given, help="the query's filter, as in SELECT ... WHERE")
    more = "an option of the source, as the query has it; may be repeated"
    command.add_argument("--option", metavar="NAME=VALUE", type=option, action="append", default=[], help=more)
    command.add_argument("--json", action="store_true", help="only what is read, one line")


def of_offsets(command: argparse.ArgumentParser) -> None:
    command.add_argument("--checkpoint", required=True, metavar="DIR", type=given, help="of the query")
    command.add_argument("--json", action="store_true", help="for programs")
    topics = command.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="T,...", type=topic_names, help="only these (default: all of the query)")
    topics.add_argument("--topic-pattern", metavar="REGEX", type=pattern, help="only topics whose whole name matches")
    command.add_argument("--source", type=int, metavar="N", help="of a query with several: which of its sources")
    where = command.add_mutually_exclusive_group()
    to = "a seq, earliest, latest, or JSON of these by topic: there the query, which is stopped, is to go on"
    where.add_argument("--move-to", metavar="SEQ", help=to)
    since = "the same, with the first message from that time on (ms since 1970, or JSON by topic)"
    where.add_argument("--move-to-time", metavar="MS", help=since)
    command.add_argument("--dry-run", action="store_true", help="show where it would be moved to, and move nothing")


def of_staged(command: argparse.ArgumentParser) -> None:
    older = "remove what nobody has touched for so long. What a job is writing just now is lost if it is older"
    _add_drop(command, "remove this one", "HOURS", older)


def of_writers(command: argparse.ArgumentParser) -> None:
    older = "forget those that have published nothing for so long"
    _add_drop(command, "forget this one, whose query will not come back", "DAYS", older)


def of_readers(command: argparse.ArgumentParser) -> None:
    drop = "drop this one: what it has not read need not be kept for it any more"
    command.add_argument("--drop", metavar="NAME", type=given, help=drop)


def _add_drop(command: argparse.ArgumentParser, one: str, unit: str, older: str) -> None:
    """`one` and `older`: help for --drop and --drop-older, whose age is in `unit`."""
    drop = command.add_mutually_exclusive_group()
    drop.add_argument("--drop", metavar="NAME", type=given, help=one)
    drop.add_argument("--drop-older", metavar=unit, type=age, help=older)


# Where one of these raises ValueError, argparse says: invalid NAME value.


def niceness(text: str) -> int:
    if not text.isdecimal() or int(text) > 19:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 19")
    return int(text)


def age(text: str) -> float:
    found = float(text)
    if not 0 <= found <= MOST_AGE:  # this refuses "nan" too
        raise ValueError
    return found


def above_zero(text: str) -> float:
    found = float(text)
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    if found > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST:g}")
    return found


def count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    if int(text) > MOST_MESSAGES:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_MESSAGES}")
    return int(text)


def mebibytes(text: str) -> int:
    if not text.isdecimal():
        raise ValueError
    return int(text)


def given(text: str) -> str:
    """Refuses what an unset variable of a script's leaves: for some options it would mean the same as to say nothing,
    which for `replay --prefix` is every topic once more."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def path(text: str) -> Path:
    return Path(given(text))


def master(text: str) -> str:
    """Spark would end with a stack of Java's."""
    if _MASTER.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is none of local[N], spark://HOST:PORT, yarn and k8s://...")
    return text


def topic_names(text: str) -> str:
    """Returns the text, which names at least one topic."""
    from mq_shards.pipeline.options import OptionError, names_of

    try:
        names_of("", given(text))
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None
    return text


def pattern(text: str) -> str:
    try:
        re.compile(given(text))
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def tables(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def reader(text: str) -> str:
    from mq_shards.shards.reader_names import ReadersError, check_name

    try:
        check_name(text)
    except ReadersError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text}: spark.KEY=VALUE is wanted")
    return key, value


def option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text}: NAME=VALUE is wanted")
    return name, value


def topic_format(text: str) -> tuple[str, str]:
    topics, equals, name = text.rpartition("=")
    if not equals or name not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text}: REGEX=FORMAT is wanted, with one of {', '.join(FORMATS)}")
    return pattern(topics), name


def duration(text: str) -> str:
    from mq_shards.pipeline.options import duration_s

    duration_s("--bronze-retention", text)
    return text


def addresses(text: str) -> str:
    """Returns the text, which names at least one address."""
    names = [name for name in text.split(",") if name.strip()]
    for name in names:
        try:
            address(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if not names:
        raise argparse.ArgumentTypeError("there is none; host:port,... is wanted")
    return text


def address(text: str) -> Address:
    from mq_shards.pipeline.client import Address

    return Address.parse(text)


def moment(text: str) -> str:
    """Returns the text: the name of a replay's plan is made of it."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T12:00:00") from None
    return text


def time(text: str) -> datetime:
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        try:
            return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
        except OverflowError:  # before there were years
            raise ValueError from None
    found = datetime.fromisoformat(text.strip())
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
