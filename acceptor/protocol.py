"""What a wire protocol is to Python: the half that csrc/acceptor/protocols/ leaves to it. docs/protocols.md says how to
make one.

A class tells the supervisor what it must know of the protocol (name, port, options); an object of it does, in an
acceptor process, what is rare: commands that the codec hands over, handshakes, filters. The engine's upcalls become
calls of its methods, one at a time. A module that has one is imported by the supervisor too: it imports what is heavy
and seldom used (TLS, compression) when it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

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
    """What a protocol may tell of the broker as a whole."""

    instance: str  # 16 hex digits
    started_wall_ns: int
    acceptor: int = 0  # which of its acceptors this is
    acceptors: int = 1
    calls: Calls | None = None  # to the gateway and from it; None where no acceptor's process is around it
    say: Callable[[dict[str, Any]], None] = lambda message: None  # to the supervisor
    watched: Watched | None = None  # descriptors beside the engine's
    access: Access | None = None  # who may do what; None where no acceptor's process is around it

    def share(self, protocol: str, what: str, message: Mapping[str, Any]) -> None:
        """With all acceptors, also those that start later: the last that was said of `what` holds. This one hears it
        when all others obey it."""
        self.say({"did": "share", "protocol": protocol, "what": what, "message": message})


class OwnTls(NamedTuple):
    """The options of a protocol that is encrypted in a way of its own."""

    cert: str = "tls-cert-file"
    key: str = "tls-key-file"
    optional: str = ""  # the flag that says that nobody has to be encrypted; none: it is so anyway
    demands: Sequence[str] = ()  # those by which everybody has to be, if one is set
    only_demanded: bool = False  # nobody is encrypted unless one is set


class OwnConfig(NamedTuple):
    """What a configuration file asks for that is written as the server reads it whose place is taken."""

    options: Mapping[str, tuple[str, object]]  # of the protocol's section: where each was set, and what TOML would have
    listen: Sequence[str]  # as --listen has them
    content: bytes  # for the acceptors: see configure
    warnings: Sequence[str]


class Protocol(ABC):
    name: ClassVar[str]  # as the codec has it: the scheme of --listen, and the section of the options
    port: ClassVar[int]  # the usual one
    example: ClassVar[str]  # a shell command that tries it; {address} is {host}:{port}, IPv6 in brackets
    options: ClassVar[Mapping[str, Kind]] = {}
    section: ClassVar[str] = ""  # of whose options it takes its own; empty: those of its name
    usual: ClassVar[bool] = True  # clients come where nothing else is said
    single: ClassVar[bool] = False  # one acceptor, the first, has all its connections
    meshed: ClassVar[bool] = False  # its clients talk to those of other acceptors: there is a mesh between them
    reloadable: ClassVar[frozenset[str]] = frozenset()  # options that may be changed while running
    secrets: ClassVar[frozenset[str]] = frozenset()  # options that are not to be shown
    own_tls: ClassVar[Sequence[OwnTls]] = ()  # show the certificate of the section tls, unless they are told of another
    has_logins: ClassVar[bool] = False  # its clients can say who they are
    has_lame_duck: ClassVar[bool] = False  # its clients can be sent to another server
    hands_over: ClassVar[bool] = False  # connections, to the gateway, which serves a part of it
    comes_by_others: ClassVar[bool] = False  # by listeners of all acceptors, where the first has its connections
    # Options of the server that it takes the place of which make no sense here, and what to do instead.
    instead: ClassVar[Mapping[str, str]] = {}
    # Whose configuration file --NAME-config takes, if there is such an option.
    config_of: ClassVar[str] = ""

    @classmethod
    def settings_of(cls, settings: Mapping[str, Section]) -> Section:
        """Its own section of all settings."""
        return settings[cls.section or cls.name]

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        """Of options that belong together, before anything starts: may complete them. Raises ValueError of one line."""

    @classmethod
    def read_config(cls, path: str) -> OwnConfig:
        """Raises ValueError of one line."""
        raise NotImplementedError

    @classmethod
    def asks_gateway(cls, content: bytes) -> bool:
        """Whether what is asked of it is answered by a gateway; `content` is what read_config() made of a file."""
        return False

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        """Whether these options, and what read_config() made of a file, let in only who they know."""
        return False

    @classmethod
    def leads_to_topics(cls, settings: Settings) -> bool:
        """Whether its clients come to topics that other protocols have too."""
        return True

    @classmethod
    def write_files(cls, settings: Settings, listening: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Called in the supervisor, when all listen, on addresses by scheme: the paths of files that say so, which are
        removed at the end."""
        return ()

    @classmethod
    def shards(cls, settings: Settings) -> int | None:
        """How many there must be for what these options ask; None: any number."""
        return None

    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        """`settings`: those of its own section. To be extended by what the codec is to know of them."""
        self._engine = engine
        self._settings = settings
        self._broker = broker
        self._number = protocol_number(self.name)
        self.secured: SecureConnections | None = None  # those that were encrypted from the first byte

    @property
    def access(self) -> Access | None:
        """If there are users."""
        access = self._broker.access
        return access if access is not None and access.on else None

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        """Of its client's certificate, if somebody has verified that."""
        return () if self.secured is None else self.secured.certificate_names(conn)

    def users_changed(self) -> None:
        """There are some, before anything listens; or they, or what they may, have changed."""

    def meet(self, others: Mapping[str, Protocol]) -> None:
        """The protocols of this acceptor, by name; before anything comes."""

    def stopping(self) -> None:
        """No more input is taken: what is said now still leaves, if it is taken soon."""

    def close(self) -> None:
        """Before the engine is."""

    def configure(self, content: bytes) -> None:
        """What read_config() made of a file: before anything listens, and before reload() when it was read anew."""

    def listening(self, host: str, port: int) -> None:
        """Clients come to this address."""

    def hand_over_by(self, handover: Handover) -> None:
        """Connections go to the gateway and come back there; or to the first acceptor, or come there from another."""

    def listening_otherwise(self, scheme: str, host: str, port: int) -> None:
        """To this one too: they are filtered from the beginning, and what they speak first is not this protocol."""

    def serving(self) -> None:
        """All that others have shared before is known; clients come from now on."""

    # --- what the supervisor says -----------------------------------------------------------------------------------

    def reload(self, settings: Settings) -> None:
        """Of its own section: of its options those that are `reloadable` may have changed, and files that they name."""

    def lame_duck(self) -> None:
        """Nobody is accepted any more; clients are to be sent away. Broker.say({"did": "lame-duck-over"}) ends it."""

    def shared(self, what: str, message: Mapping[str, Any]) -> None:
        """What an acceptor has said to all, itself included: see Broker.share."""

    # --- upcalls ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def command(self, conn: int, command: bytes) -> None:
        """What the codec handed over; to be ended with Engine.resume() or close_connection(), now or later."""

    def answer(self, conn: int, answer: Answer) -> None:
        """A worker's, to a request made for `conn`."""

    def input(self, conn: int, data: bytes) -> None:
        """Of a filtered connection, from its socket; to be answered with Engine.feed()."""

    def output(self, conn: int, data: bytes) -> None:
        """Of a filtered connection, for its socket: Engine.send() takes what becomes of it."""

    def closing(self, conn: int, frame: bytes) -> None:
        """Of a websocket whose frames it has: its last, to be sent behind its output."""

    def last_words(self, conn: int, words: bytes) -> None:
        """Of a connection that has ended, what its codec knew; closed() is next."""

    def closed(self, conn: int) -> None:
        """Nothing more will be heard of it."""

    def failed(self, conn: int) -> None:
        """Something about it could not be handled, for a reason that is ours."""
        self.closed(conn)
        self._engine.close_connection(conn)

    def poked(self) -> None:
        """Some thread has called Engine.poke()."""

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        """How long the engine may run before expire() has something to do."""
        return FOREVER

    def expire(self) -> None:
        """When that is over; and after a run of the engine before which anything but bytes of encrypted connections
        was handled. Before the upcalls of that run are."""
