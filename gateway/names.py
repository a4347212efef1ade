"""Names of topics, of any protocol. A name is bytes. In a catalog it is text with a character for each byte; what
Broker takes is text in which bytes that are not UTF-8 are surrogates. To people UTF-8 is shown as text, other bytes are
escaped; no two names are shown alike, so that what is shown identifies a topic."""

from __future__ import annotations

import re
from typing import Final

from mq_shards.csrc._core import lib

# The longest topic name in any protocol.
MAX_TOPIC_BYTES: Final[int] = lib.TOPIC_NAME_BYTES

# Escapes that shown() writes. A name that contains one is escaped itself, or it would look like another name.
_ESCAPED: Final = re.compile(r"\\x(5c|[89a-f][0-9a-f])")


def shown(name: str) -> str:
    r"""How a name is shown; `name` is as in a catalog, with a character for each byte.

    >>> [shown("caf\xc3\xa9"), shown("caf\xe9"), shown("a\\b"), shown("\\xe9")]
    ['café', 'caf\\xe9', 'a\\b', '\\x5cxe9']
    """
    if name.isascii() and "\\" not in name:
        return name
    try:
        text = name.encode("latin-1").decode()
        if _ESCAPED.search(text) is None:
            return text
    except ValueError:
        pass
    return "".join(f"\\x{ord(c):02x}" if c >= "\x80" or c == "\\" else c for c in name)


def is_escaped(text: str) -> bool:
    """Whether `text` contains an escape of shown()."""
    return _ESCAPED.search(text) is not None


def raw(text: str) -> str:
    r"""The inverse of shown(): the name, with a character for each byte.

    >>> [raw("café"), raw("caf\\xe9") == "caf\xe9", raw("\\x5cxe9")]
    ['cafÃ©', True, '\\xe9']
    """
    if is_escaped(text) and text.isascii():
        name = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        if shown(name) == text:
            return name
    return text.encode(errors="replace").decode("latin-1")


def exact(text: str) -> str:
    r"""The inverse of shown(), in the form that Broker takes.

    >>> [exact("café"), exact("caf\\xe9").encode(errors="surrogateescape")]
    ['café', b'caf\xe9']
    """
    return raw(text).encode("latin-1").decode(errors="surrogateescape") if is_escaped(text) else text


def bytes_of(topic: str) -> bytes:
    """The bytes of a topic name in the form that Broker takes."""
    return topic.encode(errors="surrogateescape")
