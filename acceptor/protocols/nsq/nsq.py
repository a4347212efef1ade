"""NSQ as the supervisor knows it: its options, and what follows from them. serving.py serves it."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.option_kinds import Setting
from mq_shards.acceptor.protocol import OwnTls, Protocol, Settings
from mq_shards.acceptor.protocols.nsq import options as nsq_options


class Nsq(Protocol):
    name = "nsq"
    served_by = "serving"
    port = 4150
    example = r"printf '  V2PUB greetings\n\0\0\0\5hello' | nc -w 1 {host} {port}"
    system = "NSQ"
    usages = ("--listen nsq://0.0.0.0:4150 --listen nsq-http://0.0.0.0:4151 --set nsq.lookupd-tcp-address=lookup:4160",)
    setting_lines = ("max-msg-size = 4_194_304", 'lookupd-tcp-address = ["lookup-1:4160", "lookup-2:4160"]')
    options = nsq_options.OPTIONS
    largest = "max-msg-size"
    instead = nsq_options.INSTEAD
    own_tls = (OwnTls("tls-cert", "tls-key"),)
    listens_early = True
    reloadable = frozenset({"tls-cert", "tls-key"})
    has_logins = True

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        return bool(settings["auth-http-address"]) or settings["tls-client-auth-policy"] == "require-verify"

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        if all(settings[name] == kind.default for name, kind in cls.options.items() if name.startswith("tls-")):
            return
        from mq_shards.acceptor.protocols.nsq import tls as nsq_tls

        nsq_tls.check(settings)
        if nsq_options.is_tls_required(settings) and settings["tls-required"] == "false":
            settings["tls-required"] = "true"


PROTOCOL: Final = Nsq
