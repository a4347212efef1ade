"""Names of topics as people see them. A worker gives bytes; those that are UTF-8 are shown as such."""

from __future__ import annotations


def shown(name: str) -> str:
    """Of a name as a catalog has it, a character for each byte.

    >>> [shown("caf\\xc3\\xa9"), shown("caf\\xe9")]
    ['café', 'café']
    """
    try:
        return name.encode("latin-1").decode()
    except ValueError:
        return name


def raw(name: str) -> str:
    """A character for each byte of what `shown` made of it, if that was UTF-8."""
    return name.encode(errors="replace").decode("latin-1")
