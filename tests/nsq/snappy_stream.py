"""Stands in for python-snappy, which pynsq and gnsq import, where it is not installed.

It has of its interface what the two use: a compressor and a decompressor of the framing format.
"""

from __future__ import annotations

import importlib.util
import sys
import types

from tests.nsq.streams import Snappy


class StreamCompressor:
    def __init__(self) -> None:
        self._stream = Snappy()

    def compress(self, data: bytes) -> bytes:
        return self._stream.encode(data)

    def add_chunk(self, data: bytes, compress: bool | None = None) -> bytes:
        return self._stream.encode(data)


class StreamDecompressor:
    def __init__(self) -> None:
        self._stream = Snappy()

    def decompress(self, data: bytes) -> bytes:
        return self._stream.decode(data)


if importlib.util.find_spec("snappy") is None:
    module = types.ModuleType("snappy")
    module.StreamCompressor = StreamCompressor  # type: ignore[attr-defined]
    module.StreamDecompressor = StreamDecompressor  # type: ignore[attr-defined]
    sys.modules["snappy"] = module
