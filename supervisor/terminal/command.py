"""The commands: their options and their output. Exit status: 0, 1 for a failure, 2 for a bad option."""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from mq_shards.supervisor.terminal import at, outlasting, show
from mq_shards.supervisor.terminal.client import CannotError, Client, ClientError, Message, reason

FAILED: Final = 1
MAX_LINE_BYTES: Final = 64 << 20

Options = argparse.Namespace


def _connect(options: Options) -> Client:
    who = at.proof(options.token_file, options.user, options.password_file)
    wanted = at.parse(options.at)
    return at.connect(
        at.secured(wanted, options.ca, insecure=options.insecure, cert=options.cert, key=options.key, who=who)
    )


def _seeing(options: Options, needs: Callable[[Client], object]) -> Client:
    """A client that can do what `needs` tries: of the address or, if that cannot, of http:// on the same host."""
    client = _connect(options)
    try:
        needs(client)
    except CannotError as error:
        client.close()
        return at.elsewhere(client.at, error)
    return client


# --- each command -----------------------------------------------------------------------------------------------------


def _top(options: Options) -> None:
    from mq_shards.supervisor.terminal import top

    slow = threading.Timer(top.SLOW_S, lambda: print(f"mq-shards: {options.at} does not answer yet", file=sys.stderr))
    slow.daemon = True
    slow.start()
    try:
        client = _seeing(options, lambda client: client.overview())
    finally:
        slow.cancel()
    with client:
        top.run(client, options)


def _topics(options: Options) -> None:
    with _seeing(options, lambda client: None) as first:
        client = first
        try:
            rows = client.topics()
        except CannotError as error:
            client = at.elsewhere(first.at, error)
            rows = client.topics()
        wanted = [row for row in rows if options.search.lower() in row["name"].lower()]
        if options.json:
            for row in wanted:
                show.as_json(row)
        else:
            show.topics(wanted)
        if client.silent:
            raise ClientError(f"{', '.join(client.silent)}: no answer, so topics there are missing, or as they were")


def _looker(options: Options, look: Callable[[Client], Iterable[Message]]) -> Iterable[Message]:
    client = _connect(options)
    try:
        return look(client)
    except CannotError as error:
        return look(at.elsewhere(client.at, error))


def _beginning(options: Options, ask: Callable[[Client, Any], Iterator[Message]]) -> outlasting.Begin:
    def begin(place: object) -> tuple[Client, Iterator[Message]]:
        client = _connect(options)
        try:
            try:
                return client, ask(client, place)
            except CannotError as error:
                client.close()
                client = at.elsewhere(client.at, error)
                return client, ask(client, place)
        except ClientError:
            client.close()
            raise

    return begin


def _peek(options: Options) -> None:
    _write(options, _looker(options, lambda client: client.peek(options.topic, options.first, options.count)))


def _tail(options: Options) -> None:
    if options.follow:
        _end_with_reader()
        begin = _beginning(options, lambda client, place: client.tail(options.topic, options.count, place))
        _write(options, outlasting.followed(begin))
    else:
        _write(options, _looker(options, lambda client: client.peek(options.topic, None, options.count)))


def _publish(options: Options) -> None:
    with _connect(options) as client:
        count = client.publish(options.topic, _bodies(options), options.delay)
    if options.json:
        show.as_json({"published": count})


def _bodies(options: Options) -> Iterator[bytes]:
    if options.body:
        yield from (os.fsencode(body) for body in options.body)
    elif options.whole:
        yield sys.stdin.buffer.read()
    else:
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n")


def _consume(options: Options) -> None:
    _end_with_reader()
    begin = _beginning(options, lambda client, _: client.consume(options.topic, options.channel))
    _write(options, outlasting.consumed(begin, options.count))


def _end_with_reader() -> None:
    """Ends this process when nobody reads its output any more (`... | head`), though no message comes to be written."""

    def watch() -> None:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # the end of a pipe is told in any case
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _write(options: Options, messages: Iterable[Message]) -> None:
    for message in messages:
        if options.json:
            show.as_json(show.message_json(message))
        elif options.raw:
            sys.stdout.buffer.write(message.body + b"\n")
            sys.stdout.buffer.flush()
        else:
            print(show.message_line(message), flush=True)


def _bench(options: Options) -> None:
    from mq_shards.supervisor.terminal import bench

    with _connect(options) as client:
        found = bench.run(client, options.seconds, options.size)
    if options.json:
        show.as_json(found)
        return
    print(f"published {found['published']} of {found['bytes']} bytes: {found['publish_rate']}/s, "
          f"{found['megabytes_per_s']} MB/s")  # fmt: skip
    if "consumed" in found:
        print(f"consumed {found['consumed']}, each finished: {found['consume_rate']}/s")


# --- options ----------------------------------------------------------------------------------------------------------


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise ValueError
    return number


def _text(text: str) -> str:
    """ValueError: it was given as bytes that are not UTF-8. They may be, where the locale is ASCII only."""
    return os.fsencode(text).decode() if any("\udc80" <= one <= "\udcff" for one in text) else text


def _some(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise ValueError
    return number


for _kind, _name in (
    (_count, "number"), (_above_zero, "number above 0"), (_some, "whole number above 0"), (_text, "UTF-8"),
):  # fmt: skip
    _kind.__name__ = _name  # the name that argparse shows in an error


class _Token(argparse.Action):
    """Puts the token into the environment, which other users cannot read: see hide()."""

    def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
        os.environ[at.TOKEN] = str(values)


def hide(arguments: Sequence[str]) -> None:
    """ps would show a token among the arguments: starts this program again without it, with it in the environment."""
    kept = []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--token":
            kept.append(word)
        elif (token := value if equals else next(rest, None)) is not None:
            os.environ[at.TOKEN] = token
    if len(kept) < len(arguments):
        own = sys.orig_argv[: len(sys.orig_argv) - len(arguments)]
        os.execv(sys.executable, [*own, *kept])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    parent = _Parser(add_help=False)
    parent.add_argument("--at", default=at.usual(), metavar="SCHEME://HOST:PORT",
                        help=f"an address of the broker: {', '.join(f'{name}://' for name in at.CLIENTS)} "
                        f"(default: ${at.ENVIRONMENT} or {at.USUAL})")  # fmt: skip
    parent.add_argument(
        "--ca", metavar="FILE", help="who may have signed the broker's certificate (https:// and the like)"
    )
    parent.add_argument("--cert", metavar="FILE", help="our certificate, where one is asked for")
    parent.add_argument("--key", metavar="FILE", help="its key")
    parent.add_argument("--token-file", metavar="FILE", help=f"a file with our token (default: ${at.TOKEN})")
    parent.add_argument("--token", metavar="TOKEN", action=_Token, help="the token itself; it does not stay in sight")
    parent.add_argument("--user", metavar="NAME", help="who we are, with --password-file")
    parent.add_argument("--password-file", metavar="FILE", help="a file with our password")
    parent.add_argument("--insecure", action="store_true", help="whoever has signed it, and whatever its name")
    parent.add_argument("--json", action="store_true", help="for programs: an object a line")
    message = _Parser(add_help=False)
    message.add_argument("topic", type=_text, metavar="TOPIC")
    message.add_argument("--raw", action="store_true", help="bodies as they are, a line end behind each")

    main = _Parser(prog="mq-shards", description="Commands for a broker that runs.")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, what: str, do: Callable[[Options], None], *parents: _Parser) -> _Parser:
        command = commands.add_parser(name, help=what, description=what, parents=[parent, *parents], allow_abbrev=False)
        command.set_defaults(do=do)
        return command

    top = add("top", "what the broker does, live", _top)
    top.add_argument("--interval", type=_above_zero, default=2.0, metavar="SECONDS")
    top.add_argument("--count", type=_some, metavar="N", help="so often, then end; without a screen")
    topics = add("topics", "all topics and tubes", _topics)
    topics.add_argument("search", nargs="?", type=_text, default="", metavar="TEXT", help="only names with this")
    peek = add("peek", "messages of a topic, which are not taken", _peek, message)
    peek.add_argument("-n", "--count", type=_some, default=10, metavar="N", help="so many (default: 10)")
    peek.add_argument("--from", type=_count, dest="first", metavar="SEQ", help="from this seq on (default: the newest)")
    tail = add("tail", "the last messages of a topic, which are not taken", _tail, message)
    tail.add_argument(
        "-n", "--count", type=_count, default=0, metavar="N", help="so many of the last (default: 0; 10 without -f)"
    )
    tail.add_argument("-f", "--follow", action="store_true", help="and what is published from now on")
    publish = add("publish", "messages to a topic: BODYs, or the lines of the input", _publish)
    publish.add_argument("topic", type=_text, metavar="TOPIC")
    publish.add_argument("body", nargs="*", metavar="BODY")
    publish.add_argument("--whole", action="store_true", help="the whole input is one message")
    publish.add_argument("--delay", type=_above_zero, default=0.0, metavar="SECONDS")
    consume = add("consume", "takes messages, and finishes each when it is written", _consume, message)
    consume.add_argument("-n", "--count", type=_some, metavar="N", help="so many, then end")
    consume.add_argument(
        "--channel",
        type=_text,
        default="mq-shards",
        metavar="NAME",
        help="NSQ's channel, Pulsar's subscription, NATS's queue group (default: mq-shards)",
    )
    bench = add("bench", "how fast one client publishes and consumes; in a topic of its own", _bench)
    bench.add_argument("--seconds", type=_above_zero, default=3.0, metavar="S")
    bench.add_argument("--size", type=_some, default=200, metavar="BYTES")
    return main


def _parse(arguments: Sequence[str]) -> Options:
    main = parser()
    options, behind = main.parse_known_args(arguments)
    if options.command == "publish" and behind and not any(word.startswith("-") for word in behind):
        options.body += behind  # argparse itself takes no BODY behind an option that stands behind TOPIC
        return options
    return main.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.command == "tail" and not options.follow and options.count == 0:
        options.count = 10
    try:
        options.do(options)
        sys.stdout.flush()
    except ClientError as error:
        print(f"mq-shards: {show.safe(' '.join(str(error).split()))}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # `... | head`
        _write_no_more()
    except OSError as error:  # of the output, as on a full disk, or of the input
        _write_no_more()
        print(f"mq-shards: {reason(error)}", file=sys.stderr)
        return FAILED
    return 0


def _write_no_more() -> None:
    """What could not be written is dropped: Python would try it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
