"""Fields of a JSON object that somebody else made: empty values if one is missing or has another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else ""


def number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def flag(fields: Mapping[str, Any], name: str) -> bool:
    return fields.get(name) is True


def texts(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name) or []
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def block(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def blocks(fields: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = fields.get(name) or []
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
