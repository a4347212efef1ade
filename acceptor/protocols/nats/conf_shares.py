"""The exports, imports and mappings of an account in nats-server's configuration file."""

from __future__ import annotations

from typing import Any, Final

from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, percent_of
from mq_shards.acceptor.protocols.nats.patterns import Patterns
from mq_shards.acceptor.protocols.nats.shares import ShareError, named_locally, refuse_latency
from mq_shards.acceptor.protocols.nats.transforms import is_subject

RESPONSES: Final = {"single": "single", "singleton": "single", "stream": "stream", "chunk": "chunk", "chunked": "chunk"}


def _subject(value: Value) -> str:
    text = value.text()
    if not is_subject(text):
        raise value.error(f'"{text}" is not a subject')
    return text


# --- exports ----------------------------------------------------------------------------------------------------------


def export(value: Value) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for_services = None
    for key, item in value.block().items():
        match key.lower():
            case "stream" | "service":
                if "kind" in found:
                    raise item.error("an export is a stream or a service")
                found |= {"kind": key.lower(), "subject": _subject(item)}
            case "accounts":
                found["accounts"] = item.texts()
            case "account_token_position":
                found["token_position"] = item.whole()
            case "response" | "response_type":
                if item.text().lower() not in RESPONSES:
                    raise item.error(f'"{item.content}" is not singleton, stream or chunked')
                found["response"] = RESPONSES[item.text().lower()]
                for_services = item
            case "threshold" | "response_threshold" | "response_max_time" | "response_time":
                found["threshold_ns"] = item.duration_ns()
                for_services = item
            case "latency":
                found["latency"] = _latency(item)
                for_services = item
            case "allow_trace":
                found["allow_trace"] = item.flag()
                for_services = item
            case _ if not item.referenced:
                raise item.error(f'unknown key "{key}" of an export')
    if "kind" not in found:
        raise value.error("an export is a stream or a service")
    if for_services is not None and found["kind"] == "stream":
        raise for_services.error("that is for services, and this is a stream")
    if place := found.get("token_position", 0):
        tokens = found["subject"].split(".")
        if not 0 < place <= len(tokens) or tokens[place - 1] != "*":
            raise value.error(f'account_token_position: token {place} of "{found["subject"]}" is no "*"')
    return found


def exports(value: Value) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    services: Patterns[dict[str, Any]] = Patterns()
    for item in value.items():
        found.append(export(item))
        if found[-1]["kind"] == "service":
            services.add(found[-1]["subject"], found[-1])
        if "latency" in found[-1]:
            try:
                refuse_latency(found[-1], services)
            except ShareError as error:
                raise item.error(str(error)) from None
    return found


def _latency(value: Value) -> dict[str, Any]:
    """How many requests are measured, and where results go; percent 0: those whose headers ask for it."""
    if isinstance(value.content, str):
        return {"subject": value.content, "percent": 100}
    found: dict[str, Any] = {"percent": 100}
    for key, item in value.block().items():
        # As with nats-server, whose other keys are in any case, and which ignores further ones.
        if key == "subject":
            found["subject"] = item.text()
        elif key == "sampling":
            by_headers = isinstance(item.content, str) and item.content.strip().lower() == "headers"
            found["percent"] = 0 if by_headers else percent_of(item)
    if "subject" not in found:
        raise value.error("latency has a subject")
    return found


# --- imports ----------------------------------------------------------------------------------------------------------


def _source(value: Value) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, item in value.block().items():
        if key.lower() in ("account", "subject"):
            found[key.lower()] = item.text() if key.lower() == "account" else _subject(item)
        elif not item.referenced:
            raise item.error(f'unknown key "{key}" of an import')
    if not found.get("account") or not found.get("subject"):
        raise value.error("an import names an account and a subject")
    return found


def import_(conf: Conf, value: Value) -> dict[str, Any]:
    found: dict[str, Any] = {}
    prefix, for_streams = "", None
    for key, item in value.block().items():
        match key.lower():
            case "stream" | "service":
                if "kind" in found:
                    raise item.error("an import is a stream or a service")
                found |= {"kind": key.lower(), **_source(item)}
            case "to":
                found["to"] = item.text()
            case "prefix":
                prefix = item.text().rstrip(".")
                if not is_subject(prefix) or {"*", ">"} & set(prefix.split(".")):
                    raise item.error(f'"{item.content}" is not a prefix')
            case "share":
                found["share"] = item.flag()
            case "allow_trace":
                found["allow_trace"] = item.flag()
                for_streams = item
            case _ if not item.referenced:
                raise item.error(f'unknown key "{key}" of an import')
    if "kind" not in found:
        raise value.error("an import is a stream or a service")
    if for_streams is not None and found["kind"] == "service":
        raise for_streams.error("allow_trace is for streams, and this is a service")
    if prefix and found["kind"] == "stream":
        if "to" in found:
            raise value.error("an import has a prefix or another subject, not both")
        found["to"] = f"{prefix}.{found['subject']}"
    found.setdefault("to", found["subject"])
    if found["kind"] == "service":
        found |= named_locally(found["subject"], found["to"])
    return found


def imports(conf: Conf, value: Value) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    services: set[tuple[str, str]] = set()
    for item in value.items():
        one = import_(conf, item)
        if one["kind"] == "service":
            if (one["account"], one["to"]) in services:
                raise item.error(f'the subject "{one["to"]}" is another service of account "{one["account"]}" already')
            services.add((one["account"], one["to"]))
        found.append(one)
    return found


# --- mappings ---------------------------------------------------------------------------------------------------------


def mappings(value: Value) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for source, item in value.block().items():
        if not is_subject(source):
            raise item.error(f'"{source}" is not a subject')
        if isinstance(item.content, str):
            found[source] = [{"subject": item.content, "weight": 100}]
            continue
        there = [_destination(one) for one in (item.content if isinstance(item.content, list) else [item])]
        if len({one["subject"] for one in there}) < len(there):
            raise item.error(f'"{source}" is mapped to one subject twice')
        found[source] = there
    return found


def _destination(value: Value) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.block().items():
        match key.lower():
            case "dest" | "destination":
                found["subject"] = item.text()
            case "weight":
                text = item.content.removesuffix("%") if isinstance(item.content, str) else str(item.whole())
                if not text.isdigit() or int(text) > 100:
                    raise item.error(f'"{item.content}" is not a weight up to 100')
                found["weight"] = int(text)
            case "cluster":
                if cluster := item.text():
                    found["cluster"] = cluster
            case _:
                raise item.error(f'unknown key "{key}" of a mapping')
    if "weight" not in found or "subject" not in found:
        raise value.error("a destination has a subject and a weight")
    return found
