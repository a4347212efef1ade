"""The Python half of a wire protocol; the other half is its codec in csrc/acceptor/protocols/. docs/protocols.md says
how to add a protocol.

The class tells the supervisor what it must know of the protocol: name, port, options. Its object in an acceptor process
does what is rare: commands that the codec hands over, handshakes, filters. The process turns the engine's upcalls into
calls of its methods, one at a time. The supervisor imports a protocol's module too, so the module must import what is
heavy and seldom used (TLS, compression) only when it is needed.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.engine import FOREVER, Answer, Engine, protocol_number
from mq_shards.acceptor.option_kinds import Kind, Setting
from mq_shards.acceptor.watched import Watched
from mq_shards.ringbuf.calls import Calls
from mq_shards.ringbuf.handover import Handover

if TYPE_CHECKING:
    from mq_shards.acceptor.secure import SecureConnections

Settings = Mapping[str, Any]
Section = TypeVar("Section")


class Broker(NamedTuple):
    """What a protocol needs to know of the broker as a whole."""

    instance: str  # 16 hex digits
    started_wall_ns: int
    acceptor: int = 0  # this acceptor's number, from 0
    acceptors: int = 1
    calls: Calls | None = None  # to and from the gateway; None outside of an acceptor process
    say: Callable[[dict[str, Any]], None] = lambda message: None  # sends a message to the supervisor
    watched: Watched | None = None  # descriptors besides the engine's
    access: Access | None = None  # who may do what; None outside of an acceptor process

    def share(self, protocol: str, what: str, message: Mapping[str, Any]) -> None:
        """Sends a message to all acceptors, also to those that start later; a new message about `what` replaces the
        last. This acceptor receives it as the last one, when all others have acted on it: see Protocol.shared()."""
        self.say({"did": "share", "protocol": protocol, "what": what, "message": message})


class OtherScheme(NamedTuple):
    """A scheme of --listen that wraps a protocol or a service in something else, such as TLS or a websocket. It is open
    only if --listen asks for it."""

    name: str
    port: int  # the default port
    example: str  # a shell command that tries it, as in Protocol
    secure: bool = True  # TLS from the first byte, as the section [tls] says


class OwnTls(NamedTuple):
    """The names of a protocol's own options for TLS, which it does by itself, without the section tls."""

    cert: str = "tls-cert-file"
    key: str = "tls-key-file"
    optional: str = ""  # the flag that makes TLS optional; empty: it always is
    demands: Sequence[str] = ()  # options that each make TLS mandatory when set
    only_demanded: bool = False  # there is no TLS unless one of `demands` is set


class LogFileTerms(NamedTuple):
    """What a configuration file says of the log file."""

    path: str = ""  # "": the journal goes to stderr
    limit_bytes: int = 0  # it is rotated when it has more; 0: never
    max_files: int = 0  # that file and older ones, which are removed when there are more; 0: none is removed


NO_LOG_FILE: Final = LogFileTerms()


class OwnConfig(NamedTuple):
    """What a configuration file asks for that is written for another server, the one that this broker replaces."""

    options: Mapping[str, tuple[str, object]]  # of the protocol's section: where each is set, and its value as in TOML
    listen: Sequence[str]  # in the form of --listen
    content: bytes  # for the acceptors: see Protocol.configure()
    warnings: Sequence[str]
    log_file: LogFileTerms


class Protocol(ABC):
    name: ClassVar[str]  # the codec's name, the scheme of --listen, and the section of the options
    served_by: ClassVar[str] = ""  # the module beside its own with the class SERVING; empty: it serves itself
    port: ClassVar[int]  # the default port
    example: ClassVar[str]  # a shell command that tries it; {address} is {host}:{port}, IPv6 in brackets
    other_schemes: ClassVar[Sequence[OtherScheme]] = ()
    system: ClassVar[str] = ""  # whose clients it serves, as --help says it; empty: those of another protocol here
    usages: ClassVar[Sequence[str]] = ()  # options of mq-shards that --help shows as examples
    setting_lines: ClassVar[Sequence[str]] = ()  # of its section, in the example of a configuration file
    options: ClassVar[Mapping[str, Kind]] = {}
    # The option that says how large a message clients may publish; a negative value: as large as any.
    largest: ClassVar[str] = ""
    section: ClassVar[str] = ""  # the section that has its options; empty: the one of its name
    usual: ClassVar[bool] = True  # it is served by default
    listens_early: ClassVar[bool] = False  # as its original: clients wait, not refused, until messages are read back
    single: ClassVar[bool] = False  # the first acceptor has all its connections
    meshed: ClassVar[bool] = False  # its clients talk to clients of other acceptors, which needs a mesh between these
    reloadable: ClassVar[frozenset[str]] = frozenset()  # options that may be changed while running
    secrets: ClassVar[frozenset[str]] = frozenset()  # options whose values must not be shown
    own_tls: ClassVar[Sequence[OwnTls]] = ()  # by default they get the certificate of the section tls
    has_logins: ClassVar[bool] = False  # its clients can say who they are
    has_lame_duck: ClassVar[bool] = False  # its clients can be sent to another server
    hands_over: ClassVar[bool] = False  # connections to the gateway, which serves a part of the protocol
    comes_by_others: ClassVar[bool] = False  # `single`, but all acceptors listen and pass connections on to the first
    # Options of the original server that make no sense here, and what to do instead.
    instead: ClassVar[Mapping[str, str]] = {}
    # The server whose configuration files --NAME-config reads; empty: there is no such option.
    config_of: ClassVar[str] = ""

    @classmethod
    def settings_of(cls, settings: Mapping[str, Section]) -> Section:
        """The protocol's own section of all settings."""
        return settings[cls.section or cls.name]

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        """Checks options against each other before anything starts, and may complete them. Raises ValueError of one
        line."""

    @classmethod
    def read_config(cls, path: str) -> OwnConfig:
        """Reads a configuration file of the original server. Raises ValueError of one line."""
        raise NotImplementedError

    @classmethod
    def asks_gateway(cls, content: bytes) -> bool:
        """Whether it needs a gateway to answer some requests; `content` is what read_config() made of a file."""
        return False

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        """Whether these options, with what read_config() made of a file, let in only known clients."""
        return False

    @classmethod
    def leads_to_topics(cls, settings: Settings) -> bool:
        """Whether its clients can reach topics that other protocols use too."""
        return True

    @classmethod
    def write_files(cls, settings: Settings, listening: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Writes files that say where the broker listens. Called in the supervisor when all listeners are bound;
        `listening` has pairs of scheme and address. Returns the files' paths, which are removed at the end."""
        return ()

    @classmethod
    def acts_by_itself(cls, settings: Settings) -> bool:
        """Whether there is something to do with these options of its section where nothing listens for its clients."""
        return False

    @classmethod
    def shards(cls, settings: Settings) -> int | None:
        """The number of shards that these options require; None: any number."""
        return None

    @classmethod
    def serving_class(cls) -> type[Protocol]:
        """The class that acceptors serve it with."""
        if not cls.served_by:
            return cls
        found: type[Protocol] = importlib.import_module(f"{cls.__module__.rpartition('.')[0]}.{cls.served_by}").SERVING
        return found

    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        """`settings`: the protocol's own section. A subclass passes on to the codec what that must know of them."""
        self._engine = engine
        self._settings = settings
        self._broker = broker
        self._number = protocol_number(self.name)
        self.secured: SecureConnections | None = None  # connections encrypted from the first byte; None: none
        # The host of the address that it listens on next, as it was asked for, if that is a name. Clients may have to
        # be told the name: a certificate may be for that, and not for the address.
        self.host_name = ""

    @property
    def access(self) -> Access | None:
        """Who may do what; None when no users are configured."""
        access = self._broker.access
        return access if access is not None and access.on else None

    def refuse_login(self, address: str, who: str, refused: Callable[[], None]) -> None:
        """This protocol has checked a login by itself, and it was wrong: calls `refused` when it may be answered, now
        or later. `who`: the name that the client gave, perhaps empty."""
        if self._broker.access is None:
            refused()
        else:
            self._broker.access.refuse(self.name, address, who, refused)

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        """The names in the client's certificate; empty when none was verified."""
        return () if self.secured is None else self.secured.certificate_names(conn)

    def users_changed(self) -> None:
        """Called when users are known, which is before anything listens, and whenever users or their rights change."""

    def meet(self, others: Mapping[str, Protocol]) -> None:
        """Gets to know the other protocols of this acceptor, by name. Called before anything arrives."""

    def parting(self) -> None:
        """The process stops, and has what clients had said: ends connections to other servers (Engine.part)."""

    def stopping(self) -> None:
        """The process takes no more input from anybody. What is written now is still sent, if clients read it soon."""

    def close(self) -> None:
        """Called at the end, before the engine is closed."""

    def configure(self, content: bytes) -> None:
        """Takes what read_config() made of a file: before anything listens, and before reload() if it was read
        again."""

    def listening(self, host: str, port: int) -> None:
        """Clients of this protocol can connect to this address."""

    def hand_over_by(self, handover: Handover) -> None:
        """Gives the protocol its end of a socket pair over which connections are handed to the gateway and back, or
        from other acceptors to the first."""

    def listening_otherwise(self, scheme: str, host: str, port: int) -> None:
        """Clients can connect to this address by another scheme: their connections are filtered from the beginning,
        since they first speak another protocol, such as HTTP for a websocket."""

    def serving(self) -> None:
        """Called when everything that other acceptors have shared is known, and clients are accepted from now on."""

    # --- messages of the supervisor ---------------------------------------------------------------------------------

    def reload(self, settings: Settings) -> None:
        """Applies the protocol's own section again: `reloadable` options, and files that options name, may have
        changed."""

    def lame_duck(self) -> None:
        """Sends clients to another server; none is accepted any more. Broker.say({"did": "lame-duck-over"}) ends it."""

    def shared(self, what: str, message: Mapping[str, Any]) -> None:
        """A message that an acceptor has sent to all acceptors, itself included: see Broker.share()."""

    # --- upcalls ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def command(self, conn: int, command: bytes) -> None:
        """Handles a command from the codec; must end it with Engine.resume() or close_connection(), now or later."""

    def answer(self, conn: int, answer: Answer) -> None:
        """A worker's reply to a request that was made for `conn`."""

    def input(self, conn: int, data: bytes) -> None:
        """Takes bytes from the socket of a filtered connection; must answer with Engine.feed()."""

    def output(self, conn: int, data: bytes) -> None:
        """Takes the codec's output on a filtered connection, and passes it transformed to Engine.send()."""

    def closing(self, conn: int, frame: bytes) -> None:
        """Sends the last frame of a websocket whose frames Python makes, behind all its earlier output."""

    def last_words(self, conn: int, words: bytes) -> None:
        """What the codec tells of a connection that has ended; closed() is called next."""

    def closed(self, conn: int) -> None:
        """The connection is closed: no more calls follow for it."""

    def failed(self, conn: int) -> None:
        """Something on the connection could not be handled because of a defect of ours."""
        self.closed(conn)
        self._engine.close_connection(conn)

    def poked(self) -> None:
        """A thread has called Engine.poke()."""

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        """How long the engine may run before expire() has something to do."""
        return FOREVER

    def expire(self) -> None:
        """Called when that time has passed, and after a run of the engine if any upcall but bytes of encrypted
        connections was handled since the run before. The upcalls of that run come afterwards."""
