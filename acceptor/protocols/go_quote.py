"""Text as Go's %q writes it: the codecs' own function (go_quote.c)."""

from __future__ import annotations

from mq_shards.csrc._core import ffi, lib


def quoted(text: bytes) -> str:
    """
    >>> quoted(b"a\\x01")
    '"a\\\\x01"'
    """
    out = ffi.new("uint8_t[]", 4 * len(text) + 2)
    return bytes(ffi.buffer(out, lib.go_quote(out, text, len(text)) - out)).decode()
