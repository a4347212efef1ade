"""Shards, the processes that own them, and the supervisor that keeps those processes alive."""

from typing import Final

VERSION: Final = "0.1.0"
