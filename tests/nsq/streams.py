"""What a client may negotiate between the socket and the protocol: raw deflate, and snappy in its framing format.

Written from the formats (RFC 1951; framing_format.txt of google/snappy), one frame at a time, so that a test can also
send what a library would not.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import cramjam
import crc32c

SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
SNAPPY_BLOCK_BYTES = 65536
COMPRESSED, UNCOMPRESSED = 0, 1


class Filter(Protocol):
    def encode(self, data: bytes) -> bytes: ...
    def decode(self, data: bytes) -> bytes: ...


class Deflate:
    def __init__(self, level: int = 6) -> None:
        self._out = zlib.compressobj(level, wbits=-15)
        self._in = zlib.decompressobj(wbits=-15)

    def encode(self, data: bytes) -> bytes:
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)

    def decode(self, data: bytes) -> bytes:
        return self._in.decompress(data)


class Snappy:
    def __init__(self, *, compress: bool = True) -> None:
        self.compress = compress
        self._began = False
        self._in = bytearray()

    def encode(self, data: bytes) -> bytes:
        out = b"" if self._began else SNAPPY_MAGIC
        self._began = True
        for start in range(0, len(data), SNAPPY_BLOCK_BYTES):
            out += snappy_chunk(data[start : start + SNAPPY_BLOCK_BYTES], compress=self.compress)
        return out

    def decode(self, data: bytes) -> bytes:
        self._in += data
        out = b""
        while len(self._in) >= 4:
            kind, length = self._in[0], int.from_bytes(self._in[1:4], "little")
            if len(self._in) < 4 + length:
                break
            content = bytes(self._in[4 : 4 + length])
            del self._in[: 4 + length]
            if kind == SNAPPY_MAGIC[0]:
                assert content == SNAPPY_MAGIC[4:]
            elif kind < 0x80:
                assert kind in (COMPRESSED, UNCOMPRESSED), f"a chunk of kind {kind}"
                block = bytes(cramjam.snappy.decompress_raw(content[4:])) if kind == COMPRESSED else content[4:]
                assert len(block) <= SNAPPY_BLOCK_BYTES
                assert content[:4] == masked_crc(block), "a chunk's checksum is wrong"
                out += block
        return out


def snappy_chunk(block: bytes, *, compress: bool = True) -> bytes:
    content = masked_crc(block) + (bytes(cramjam.snappy.compress_raw(block)) if compress else block)
    return bytes([COMPRESSED if compress else UNCOMPRESSED]) + len(content).to_bytes(3, "little") + content


def masked_crc(data: bytes) -> bytes:
    crc = crc32c.crc32c(data)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
