"""The client side of a websocket, to a hub: makes the request and checks the answer, as nats-server does. After that
the engine handles frames (csrc/acceptor/framing.c), except compressed ones.

    asked = Asked(host, path, begin, say, compresses=..., masks=...)
    asked.request           sent first, outside of frames
    asked.decode(data)      a filter: takes the answer, and then compressed frames, or returns frames as they are
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.filters import FilterError
from mq_shards.acceptor.filters.websocket import PythonWebsocket
from mq_shards.acceptor.protocols.nats.websocket_upgrade import (
    COMPRESSION,
    FRAME_BYTES,
    GUID,
    LEAF_NODE,
    MAX_HEAD_BYTES,
)

CONTEXTS: Final = ("server_no_context_takeover", "client_no_context_takeover")


class Asked:
    def __init__(
        self,
        host: str,
        path: str,
        begin: Callable[[bool, bytes], bytes],
        say: Callable[[bytes], None],
        *,
        compresses: bool,
        masks: bool,
    ) -> None:
        """`host`: with its port; `path`: of the URL. `begin` is called when frames begin that are not compressed, with
        whether ours are to be masked and what has come of the other side's; it returns what is still to be decoded.
        `say` sends frames at once."""
        self._begin, self._say, self._compresses, self._masks = begin, say, compresses, masks
        key = base64.b64encode(os.urandom(16))
        self._accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        lines = [
            f"GET {path}{LEAF_NODE} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13",
            *([f"Sec-WebSocket-Extensions: {'; '.join((COMPRESSION, *CONTEXTS))}"] if compresses else []),
            *([] if masks else ["Nats-No-Masking: true"]),
        ]  # fmt: skip
        self.request: Final = "\r\n".join([*lines, "", ""]).encode()
        self._head = b""
        self._is_granted = False
        self._websocket: PythonWebsocket | None = None  # if frames are compressed

    @property
    def ended(self) -> bool:
        return self._websocket is not None and self._websocket.ended

    @property
    def pending(self) -> bool:
        return self._websocket is not None and self._websocket.pending

    def decode(self, data: bytes) -> bytes:
        if self._is_granted:
            return data if self._websocket is None else self._websocket.decode(data)
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_HEAD_BYTES:
                raise FilterError("websocket: what was answered has no end")
            return b""
        self._head = b""
        compresses, masks = self._granted(head)
        self._is_granted = True
        if not compresses:
            return self._begin(masks, rest)
        self._websocket = PythonWebsocket(self._say, unmasked=True, frame_bytes=FRAME_BYTES, masks=masks)
        return self._websocket.decode(rest)

    def encode(self, data: bytes) -> bytes:
        if not self._is_granted:
            return b""  # nothing can be sent yet
        return data if self._websocket is None else self._websocket.encode(data)

    def _granted(self, head: bytes) -> tuple[bool, bool]:
        """Whether frames are compressed, and ours masked. Raises FilterError when the request was refused."""
        first, *lines = head.decode("latin-1").split("\r\n")
        said = {name.lower(): value.strip(" \t") for name, _, value in (line.partition(":") for line in lines)}
        granted = (
            first.split(" ")[1:2] == ["101"] and said.get("upgrade", "").lower() == "websocket"
            and said.get("connection", "").lower() == "upgrade" and said.get("sec-websocket-accept") == self._accept
        )  # fmt: skip
        if not granted:
            raise FilterError(f"websocket: it is refused: {first[:100]}")
        words = [word.strip(" \t").lower() for word in said.get("sec-websocket-extensions", "").split(";")]
        compresses = self._compresses and COMPRESSION in words
        if compresses and not set(CONTEXTS) <= set(words):
            raise FilterError("websocket: compression negotiation error")
        return compresses, self._masks or said.get("nats-no-masking") != "true"
