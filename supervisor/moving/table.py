"""The servers whose command lines mq-shards understands: `mq-shards as NAME ARGUMENTS...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor import VERSION
from mq_shards.supervisor.moving.translation import Translation, own_arguments

# By name of the program: the module that reads its command line.
SERVERS: Final[Mapping[str, str]] = {
    "beanstalkd": "beanstalkd", "nsqd": "nsqd", "nats-server": "nats_server", "pulsar": "pulsar",
}  # fmt: skip
# Those whose messages `mq-shards import` reads.
IMPORTS: Final = ("beanstalkd", "nsqd")


def translate(arguments: Sequence[str]) -> Translation:
    """Translates the arguments that follow `as`. Raises OptionsError."""
    if not arguments or arguments[0] not in SERVERS:
        there_are = ", ".join(SERVERS)
        raise OptionsError(f'as: "{arguments[0] if arguments else ""}" is not a server of those ({there_are})')
    name, *rest = arguments
    theirs, ours = own_arguments(rest)
    module = import_module(f"mq_shards.supervisor.moving.{SERVERS[name]}")
    read: Callable[[Sequence[str], str], Translation] = module.translate
    translation = read(theirs, VERSION)
    # The last of two options counts, so mq-shards' own win.
    translation.arguments += ours
    return translation
