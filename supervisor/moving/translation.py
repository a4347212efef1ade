"""Another server's command line, translated to options of mq-shards."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError

# The data directory, inside the other server's, so that the two never touch the same files.
DATA_DIR: Final = "mq-shards"
IMPORTED: Final = "imported.json"  # in a data directory that an import has made
ANY_ADDRESS: Final = "0.0.0.0"
# To servers that are dual-stack: all IPv6 and IPv4 addresses.
DUAL_STACK: Final = ("", ANY_ADDRESS, "::")


@dataclass(slots=True, eq=False, repr=False)
class Translation:
    """Another server's command line as one of ours."""

    arguments: list[str] = field(default_factory=list)  # the command line of mq-shards
    notes: list[str] = field(default_factory=list)  # what differs from the other server, one line each
    said: str | None = None  # text to print instead of a start; None: start
    signal: tuple[int, int] | None = None  # pid and signal to send instead of a start; None: start
    checks_only: bool = False  # only check the configuration
    has_file: bool = False  # a configuration file was read: at a reload it is translated again

    def option(self, name: str, value: str | None = None) -> None:
        self.arguments += [f"--{name}"] if value is None else [f"--{name}", value]

    def setting(self, name: str, value: str) -> None:
        self.arguments += ["--set", f"{name}={value}"]

    def listen(self, scheme: str, host: str, port: str, wildcards: Sequence[str] = (), shown: str = "") -> None:
        """Adds a --listen. `wildcards`: hosts that mean all IPv6 and IPv4 addresses to the other server. `shown`: the
        certificate and key, as the query of an address."""
        bare = host.strip("[]")
        behind = "&".join(filter(None, ("both" if bare in wildcards else "", shown)))
        address = f"{scheme}://{f'[{bare}]' if ':' in bare else bare}:{port}"
        self.option("listen", f"{address}?{behind}" if behind else address)

    def keep_in(self, directory: str, left: Sequence[str], whose: str, is_made: bool = False) -> None:
        """Sets the data directory. `left`: patterns of the files in which the other server keeps messages. `is_made`:
        it creates a missing directory; others refuse, as the disk may not be mounted. Raises OptionsError."""
        if not is_made and not Path(directory).is_dir():
            raise OptionsError(f"{whose}: there is no directory {directory} to keep messages in")
        data_dir = Path(directory) / DATA_DIR
        self.option("data-dir", str(data_dir))
        if has_more(Path(directory), left, data_dir):
            self.notes.append(f"{directory} has messages of {whose}, which are not read: see docs/moving.md")


def has_more(directory: Path, left: Sequence[str], data_dir: Path) -> bool:
    """Whether files of the patterns `left` were written after the import that made `data_dir`; or there was none."""
    try:
        imported_ns = int(json.loads((data_dir / IMPORTED).read_bytes())["at_ns"])
    except (OSError, ValueError, KeyError, TypeError):
        imported_ns = 0
    return any(path.stat().st_mtime_ns > imported_ns for pattern in left for path in directory.glob(pattern))


def own_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments at `--` into the other server's and mq-shards' own."""
    given = list(arguments)
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def checked(value: str, flag: str, numbers: range) -> int:
    """Reads a number of that range. Raises OptionsError."""
    if not value.isascii() or not value.isdigit() or int(value) not in numbers:
        raise OptionsError(f'{flag}: "{value}" is not a number from {numbers.start} to {numbers.stop - 1}')
    return int(value)


def port_of(text: str, flag: str) -> str:
    """Reads a port: a number, or the name of a service in /etc/services. Raises OptionsError."""
    if text and not text.isdigit():
        try:
            return str(socket.getservbyname(text, "tcp"))
        except (OSError, UnicodeError, ValueError):
            pass
    return str(checked(text, flag, range(65536)))


def ignored(translation: Translation, flag: str, why: Mapping[str, str], dashes: str = "-") -> bool:
    """Notes that a flag has no effect; False if it is not among those without effect."""
    if flag in why:
        translation.notes.append(f"{dashes}{flag} has no effect: {why[flag]}")
    return flag in why
