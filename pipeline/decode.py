"""Decodes runs of log records to Arrow record batches: in C, or without it in Python, to the same rows but slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq_shards.pipeline.decode_core import Decoder
else:
    try:
        from mq_shards.pipeline.decode_core import Decoder
    except ImportError:
        from mq_shards.pipeline.decode_python import Decoder

__all__ = ["Decoder"]
