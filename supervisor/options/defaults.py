"""Defaults and bounds of the options that are in no section, and their kinds."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.table import PROTOCOLS

MAX_WORKERS: Final = 64  # BOARD_MAX_WORKERS in csrc/ringbuf/board.h
MAX_ACCEPTORS: Final = 63  # BOARD_MAX_ACCEPTORS, less the gateway's place
DEFAULT_SHARDS: Final = 64
DEFAULT_ACCEPTORS: Final = 1
DEFAULT_DATA_DIR: Final = "./data"
SYNC_MODES: Final = ("always", "interval", "never")
DEFAULT_SYNC: Final = "interval"
DAMAGE_MODES: Final = ("serve", "refuse")
DEFAULT_DAMAGE: Final = "serve"
DEFAULT_LOG_LEVEL: Final = "info"
MAX_LOG_FILE: Final = (1 << 63) - 1  # bytes, or files: as much as another server's file may say

COUNTS: Final = ("workers", "acceptors", "shards")
LOG_FILE_NUMBERS: Final = ("log-file-limit", "log-file-count")
# Options that name a configuration file in another server's format, and the protocol that reads it.
OWN_CONFIGS: Final = {f"{name}-config": name for name, protocol in PROTOCOLS.items() if protocol.config_of}
