"""NATS as the supervisor knows it: its options, and what follows from them. serving.py serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from mq_shards.acceptor.option_kinds import Setting
from mq_shards.acceptor.protocol import OwnConfig, Settings
from mq_shards.acceptor.protocols.nats import options as nats_options
from mq_shards.acceptor.protocols.nats.guarding import Guarding


class Nats(Guarding):
    name = "nats"
    served_by = "serving"
    port = 4222
    example = "printf 'SUB greetings 1\\r\\nPUB greetings 5\\r\\nhello\\r\\nPING\\r\\n' | nc -w 1 {host} {port}"
    system, usages, other_schemes = "NATS", nats_options.USAGES, nats_options.OTHER_SCHEMES
    options = nats_options.OPTIONS
    largest = "max-payload"
    meshed = has_lame_duck = True
    reloadable = frozenset(options) - nats_options.FIXED
    secrets = nats_options.SECRETS
    own_tls = nats_options.OWN_TLS
    config_of = "nats-server"

    @classmethod
    def read_config(cls, path: str) -> OwnConfig:
        from mq_shards.acceptor.protocols.nats.conf_keys import read_conf

        conf = read_conf(path)
        listen = [f"{scheme}://{conf.address(scheme)}{conf.shown_at(scheme)}" for scheme in conf.ports]
        return OwnConfig(conf.options, listen, orjson.dumps(conf.content), conf.warnings, conf.log_file)

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        nats_options.check(settings)

    @classmethod
    def write_files(cls, settings: Settings, listening: Sequence[tuple[str, str]]) -> Sequence[str]:
        if not (settings["pid-file"] or settings["ports-file-dir"] or any(one == cls.name for one, _ in listening)):
            return ()
        from mq_shards.acceptor.protocols.nats import files as nats_files

        return nats_files.write(settings, listening)

    @classmethod
    def asks_gateway(cls, content: bytes) -> bool:
        from mq_shards.acceptor.protocols.nats.system import has_users

        return has_users(content)


PROTOCOL: Final = Nats
