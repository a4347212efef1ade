"""What another server's command line comes to here."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError

# In the directory that the other server keeps its files in: the two never meet.
DATA_DIR: Final = "mq-shards"
ANY_ADDRESS: Final = "0.0.0.0"


@dataclass(slots=True)
class Translation:
    arguments: list[str] = field(default_factory=list)  # of mq-shards
    notes: list[str] = field(default_factory=list)  # what is not as it was there, one line each
    said: str | None = None  # there is nothing to run, only this to say
    signal: tuple[int, int] | None = None  # there is only a process to be told: which, and by which signal
    checks_only: bool = False  # the configuration is to be looked at

    def option(self, name: str, value: str | None = None) -> None:
        self.arguments += [f"--{name}"] if value is None else [f"--{name}", value]

    def setting(self, name: str, value: str) -> None:
        self.arguments += ["--set", f"{name}={value}"]

    def listen(self, scheme: str, host: str, port: str, wildcards: Sequence[str] = (), shown: str = "") -> None:
        """`wildcards`: hosts that to the other server are all addresses of IPv6 and of IPv4; `shown`: the certificate,
        as it stands behind an address."""
        bare = host.strip("[]")
        behind = "&".join(filter(None, ("both" if bare in wildcards else "", shown)))
        address = f"{scheme}://{f'[{bare}]' if ':' in bare else bare}:{port}"
        self.option("listen", f"{address}?{behind}" if behind else address)

    def keep_in(self, directory: str, left: Sequence[str], whose: str, is_made: bool = False) -> None:
        """`left`: patterns of files in which the other server keeps messages; `is_made`: that server makes a directory
        that is not there. Others end, so that nothing is kept where a disk is not mounted. Raises OptionsError."""
        if not is_made and not Path(directory).is_dir():
            raise OptionsError(f"{whose}: there is no directory {directory} to keep messages in")
        self.option("data-dir", str(Path(directory) / DATA_DIR))
        if any(any(Path(directory).glob(pattern)) for pattern in left):
            self.notes.append(f"{directory} has messages of {whose}, which are not read: see docs/moving.md")


def own_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The other server's, and mq-shards' own, which follow a `--`."""
    given = list(arguments)
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def checked(value: str, flag: str, numbers: range) -> int:
    """Raises OptionsError."""
    if not value.isascii() or not value.isdigit() or int(value) not in numbers:
        raise OptionsError(f'{flag}: "{value}" is not a number from {numbers.start} to {numbers.stop - 1}')
    return int(value)


def port_of(text: str, flag: str) -> str:
    """A number, or the name of a service, as in /etc/services. Raises OptionsError."""
    if text and not text.isdigit():
        try:
            return str(socket.getservbyname(text, "tcp"))
        except (OSError, UnicodeError, ValueError):
            pass
    return str(checked(text, flag, range(65536)))


def ignored(translation: Translation, flag: str, why: Mapping[str, str], dashes: str = "-") -> bool:
    """Notes a flag that has no meaning here; False if it is not such a one."""
    if flag in why:
        translation.notes.append(f"{dashes}{flag} has no effect: {why[flag]}")
    return flag in why
