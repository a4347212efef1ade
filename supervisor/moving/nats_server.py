"""nats-server's command line (2.15's)."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mq_shards.acceptor.option_kinds import OptionsError, without_secrets
from mq_shards.acceptor.protocols.nats.nats import Nats
from mq_shards.supervisor.moving import go_flags
from mq_shards.supervisor.moving.translation import ANY_ADDRESS, DUAL_STACK, Translation, ignored

CLIENTS: Final = "nats"
ROUTES: Final = "nats-route"
MONITORING: Final = "nats-http"
SECURE_MONITORING: Final = "nats-https"
ANY_PORT: Final = ":-1"
HELP: Final = """\
Usage: mq-shards as nats-server [options of nats-server 2.15] [-- options of mq-shards]
"""
# The names of each option that takes a value; the rest of this module uses the first one.
NAMES: Final = (
    ("a", "addr", "net"), ("p", "port"), ("n", "name", "server_name"), ("P", "pid"), ("m", "http_port"),
    ("ms", "https_port"), ("c", "config"), ("sl", "signal"), ("l", "log"), ("r", "remote_syslog"), ("sd", "store_dir"),
    ("client_advertise",), ("ports_file_dir",), ("log_size_limit",), ("max_traced_msg_len",), ("user",), ("pass",),
    ("auth",), ("tlscert",), ("tlskey",), ("tlscacert",), ("routes",), ("cluster", "cluster_listen"), ("cluster_name",),
    ("cluster_advertise",), ("connect_retries",), ("profile",),
)  # fmt: skip
SWITCHES: Final = (
    ("t",), ("T", "logtime"), ("logtime_utc",), ("s", "syslog"), ("D", "debug"), ("V", "trace"), ("VV",), ("DV",),
    ("DVV",), ("js", "jetstream"), ("tls",), ("tlsverify",), ("no_advertise",), ("h", "help"), ("v", "version"),
    ("help_tls",),
)  # fmt: skip
# Words that it takes without a dash.
COMMANDS: Final = {"help": "h", "version": "v"}
BY_NAME: Final = {name: names[0] for names in (*NAMES, *SWITCHES) for name in names}
ARE_SWITCHES: Final = frozenset(names[0] for names in SWITCHES)
SWITCHED: Final = {name: first in ARE_SWITCHES for name, first in BY_NAME.items()}
SETTINGS: Final[Mapping[str, str]] = {
    "n": "server-name", "P": "pid-file", "client_advertise": "client-advertise", "ports_file_dir": "ports-file-dir",
    "user": "user", "pass": "password", "auth": "token", "tlscert": "tls-cert-file", "tlskey": "tls-key-file",
    "tlscacert": "tls-ca-file", "tlsverify": "tls-verify", "cluster_name": "cluster-name",
    "cluster_advertise": "cluster-advertise", "connect_retries": "cluster-connect-retries",
    "no_advertise": "cluster-no-advertise", "max_traced_msg_len": "max-traced-msg-len",
}  # fmt: skip
JOURNAL: Final = "lines go to stderr, which the service manager keeps, or to the file of -l"
NO_EFFECT: Final[Mapping[str, str]] = {
    "js": "there is no JetStream here; nats.topics keeps messages of subjects, see docs/nats.md",
    "sd": "there is no JetStream here; nats.topics keeps messages of subjects, see docs/nats.md",
    "s": JOURNAL, "r": JOURNAL, "T=false": "every line has its time", "logtime_utc": "times are of the local zone",
    "profile": "use py-spy",
}  # fmt: skip


# The signals of -sl to a running server. Here all that stop it are an orderly stop.
SIGNALS: Final = {
    "reload": signal.SIGHUP, "ldm": signal.SIGUSR2, "stop": signal.SIGTERM, "quit": signal.SIGTERM,
    "term": signal.SIGTERM, "reopen": signal.SIGUSR1,
}  # fmt: skip
# Switches that mean something when they are set to false: -T is on by default, --tls=false drops flags of TLS.
HEARD_WHEN_FALSE: Final = ("T", "tls")
TLS_FLAGS: Final = ("tlscert", "tlskey", "tlscacert", "tlsverify")


class Address(NamedTuple):
    host: str
    port: str
    shown: str = ""  # its certificate and key, as the query of an address; "": none


def translate(arguments: Sequence[str], version: str) -> Translation:
    """Translates nats-server's arguments. Raises OptionsError."""
    t = Translation()
    given = dict(_flags(arguments))
    if given.keys() & {"h", "v", "help_tls"}:
        t.said = _version(version) if "v" in given else HELP
        return t
    if "sl" in given:
        t.signal = _signal(given["sl"])
        return t
    if not given.get("c"):
        if "t" in given:
            raise OptionsError("nats-server: -t checks the file of -c, and there is none")
        given.pop("c", None)
    if " " in given.get("n", ""):
        raise OptionsError("nats-server: the name of a server has no spaces")
    given = _with_tls(given)
    addresses = _addresses(given)
    if given.get("routes") and ROUTES not in addresses:
        raise OptionsError("nats-server: solicited routes require cluster capabilities, e.g. --cluster")
    t.option("memory")  # core NATS keeps no messages
    if "c" in given:
        t.option("nats-config", given["c"])
        t.has_file = True
    for scheme, address in addresses.items():
        t.listen(scheme, address.host, address.port, DUAL_STACK, address.shown)
    for name, value in given.items():
        if name in SETTINGS:
            t.setting(f"nats.{SETTINGS[name]}", value)
        elif name == "l":
            if value:
                t.option("log-file", value)
        elif name == "log_size_limit":
            t.option("log-file-limit", value)
        elif name in ("D", "V", "VV", "DV", "DVV"):
            if "D" in name:
                t.option("log-level", "debug")
            if "V" in name:
                t.setting("nats.trace", "true")
        elif name == "T":
            ignored(t, f"T={value}", NO_EFFECT)
        else:
            ignored(t, name, NO_EFFECT)
    for route in filter(None, (part.strip() for part in given.get("routes", "").split(","))):
        t.setting("nats.routes", route)
    t.checks_only = "t" in given
    return t


def _version(version: str) -> str:
    """A nats-server's line, from which clients' test suites read what it can do, and then what it really is."""
    from mq_shards.acceptor.protocols.nats.client import NATS_SERVER_VERSION

    return f"nats-server: v{NATS_SERVER_VERSION}\nmq-shards {version}\n"


def _signal(text: str) -> tuple[int, int]:
    """Reads COMMAND=PID or COMMAND=PIDFILE; returns the pid and the signal. Raises OptionsError."""
    command, equals, whom = text.partition("=")
    if command not in SIGNALS:
        raise OptionsError(f'nats-server: -sl "{command}" is none of {", ".join(SIGNALS)}')
    if not equals:
        raise OptionsError(f"nats-server: -sl {command} needs a process: -sl {command}=PID, or a file with it (-P)")
    try:
        pid = int(whom if whom.isdigit() else Path(whom).read_text())
    except OSError as error:
        raise OptionsError(f"nats-server: -sl: cannot read {whom}: {error.strerror}") from None
    except ValueError:
        raise OptionsError(f"nats-server: -sl: {whom} does not hold the number of a process") from None
    if not 0 < pid < 1 << 31:
        raise OptionsError(f"nats-server: -sl: {pid} is no process")
    return pid, SIGNALS[command]


def _with_tls(given: dict[str, str]) -> dict[str, str]:
    """Applies --tls: it demands a certificate; --tls=false drops the flags that name one. Raises OptionsError."""
    wanted = given.pop("tls", "")
    if wanted == "true" and not {"tlscert", "tlskey"} <= given.keys() and "c" not in given:
        raise OptionsError("nats-server: --tls needs --tlscert and --tlskey")
    return {name: value for name, value in given.items() if wanted != "false" or name not in TLS_FLAGS}


def _addresses(given: Mapping[str, str]) -> dict[str, Address]:
    """The addresses of the configuration file, overridden by flags; by scheme. Raises OptionsError."""
    found = {CLIENTS: Address(ANY_ADDRESS, "4222")}
    if "c" in given:
        try:
            listening = Nats.read_config(given["c"]).listen
        except ValueError as error:
            raise OptionsError(str(error)) from None
        for one in listening:
            url = urlsplit(one)
            found[url.scheme] = Address(url.hostname or "", str(url.port or 0), url.query)
    host, port = given.get("a", found[CLIENTS].host), given.get("p", found[CLIENTS].port)
    found[CLIENTS] = Address(host, _port(port, "-p"))
    if "m" in given:
        found[MONITORING] = Address(host, _port(given["m"], "-m"))
    if "ms" in given:
        if not {"tlscert", "tlskey"} <= given.keys():
            raise OptionsError("nats-server: -ms needs --tlscert and --tlskey (in a file: https_port, beside tls)")
        shown = f"cert={given['tlscert']}&key={given['tlskey']}"
        found[SECURE_MONITORING] = Address(host, _port(given["ms"], "-ms"), shown)
    if "cluster" in given:
        found[ROUTES] = _cluster_address(given["cluster"])
    return found


def _cluster_address(text: str) -> Address:
    """Reads nats://HOST:PORT; port -1 is any free one. Raises OptionsError."""
    url = urlsplit(text.removesuffix(ANY_PORT))
    try:
        port = "0" if text.endswith(ANY_PORT) else str(url.port or "")
    except ValueError:
        port = ""
    if url.scheme not in ("nats", ROUTES) or not port:
        raise OptionsError(f'nats-server: "{without_secrets(text)}" is not nats://HOST:PORT')
    return Address(url.hostname or "", port)


def _port(text: str, flag: str) -> str:
    if text == "-1":
        return "0"  # any port that is free
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise OptionsError(f'nats-server: {flag} "{text}" is not a port')
    return text


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the first name of each flag, and its value."""
    for given, value in go_flags.read(arguments, "nats-server", SWITCHED):
        name = BY_NAME[given] if given else COMMANDS.get(value, "")
        if not name:
            raise OptionsError(f'nats-server takes no "{value}"')
        if not given or name not in ARE_SWITCHES:
            yield name, value
            continue
        is_on = go_flags.boolean(value, f"nats-server: -{given}")
        if is_on or name in HEARD_WHEN_FALSE:
            yield name, "true" if is_on else "false"
