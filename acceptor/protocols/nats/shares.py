"""Exports, imports and mappings of accounts: checks them, and makes the lines that the codec reads.

An account exports streams and services, to all accounts or to some; another imports them, perhaps under another
subject. An import needs a matching export. The same is accepted as by nats-server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from mq_shards.acceptor.pauses import Pause, no_pause
from mq_shards.acceptor.protocols.nats.cycles import Import, Imports
from mq_shards.acceptor.protocols.nats.patterns import Patterns
from mq_shards.acceptor.protocols.nats.transforms import (
    TransformError,
    by_number,
    by_star,
    is_literal,
    pieces_of,
    tokens_of,
)

# How long a service may take to answer, if the export does not say.
ANSWER_NS: Final = 120_000_000_000

Account = Mapping[str, Any]


class ShareError(ValueError):
    """Why exports, imports or mappings are not valid."""


class Exports:
    """Finds exports of accounts by their subjects."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Any, dict[str, Patterns[Any]]]] = {}  # by account: the list of its exports, by kind

    def covering(self, exporter: Account, kind: str, subject: str) -> Sequence[Any]:
        """Those that have all subjects of that pattern, in their order."""
        exports = exporter.get("exports", ())
        of, by_kind = self._of.get(exporter["name"], (None, {}))
        if of is not exports:
            by_kind = {}
            for export in exports:
                by_kind.setdefault(export["kind"], Patterns()).add(export["subject"], export)
            self._of[exporter["name"]] = exports, by_kind
        return by_kind[kind].covering(subject) if kind in by_kind else ()


def export_of(exports: Exports, exporter: Account, kind: str, subject: str, importer: str) -> Account:
    """The export that allows an account to import a subject. Raises ShareError."""
    for export in exports.covering(exporter, kind, subject):
        if _may(export, subject, importer):
            found: Account = export
            return found
    raise ShareError(f'account "{exporter["name"]}" gives "{importer}" no {kind} "{subject}"')


def _may(export: Account, subject: str, importer: str) -> bool:
    if (place := export.get("token_position", 0)) > 0:
        tokens = tokens_of(subject)
        return bool(place <= len(tokens) and tokens[place - 1] == importer)
    accounts: Sequence[str] | None = export.get("accounts")
    return accounts is None or importer in accounts


def mapping_lines(source: str, destinations: Sequence[Mapping[str, Any]], cluster: str) -> str:
    """Each destination has a subject and a weight in percent; the remainder up to 100 keeps the subject. If there are
    destinations for this server's cluster, they replace those without a cluster."""
    by_cluster: dict[str, list[tuple[int, str]]] = {}
    for one in destinations:
        pieces = pieces_of(source, one["subject"])
        by_cluster.setdefault(one.get("cluster", ""), []).append((int(one["weight"]), pieces))
    if any(sum(weight for weight, _ in found) > 100 for found in by_cluster.values()):
        raise TransformError(f'"{source}": the weights are more than 100')
    found = by_cluster.get(cluster, by_cluster.get("", []))
    total = sum(weight for weight, _ in found)
    if total < 100 and all(one["subject"] != source for one in destinations):
        found.append((100 - total, pieces_of(source, by_number(source))))
    lines, below = [f"m {source}"], 0
    for weight, pieces in sorted(found, key=lambda one: one[0]):
        below += weight
        lines.append(f"d {below} {pieces}")
    return "".join(line + "\n" for line in lines)


def stream_line(importer: int, one: Account) -> str:
    source, traced = one["subject"], int(one.get("allow_trace", False))
    return f"t {importer} {traced} {source} {pieces_of(source, by_number(one['to']), reversible=True)}\n"


def service_line(exporter: int, export: Account, one: Account) -> str:
    """Requests to `to` in the importing account go to `subject` in the exporting one."""
    subject, to, is_shared = one["subject"], one["to"], one.get("share", False)
    traced = int(export.get("allow_trace", False))
    is_single, lifetime = export.get("response", "single") == "single", lifetime_ns(export)
    latency = f"{said['percent']} {said['subject']}" if (said := export.get("latency")) else "-"
    head = f"v {exporter} {traced} {int(is_single)} {lifetime} {int(is_shared)} {latency}"
    return f"{head} {to} {_service_pieces(to, subject, tuple(one.get('numbers', ())))}\n"


def lifetime_ns(export: Account) -> int:
    """How long a service may take to answer."""
    found: int = export.get("threshold_ns") or ANSWER_NS
    return found


def refuse_latency(export: Account, services: Patterns[Any]) -> None:
    """Raises ShareError when a service cannot be measured. `services`: those that its account exports, up to this
    one."""
    subject = export["latency"]["subject"]
    if not is_literal(subject):
        raise ShareError(f'latency: "{subject}" is not a subject to publish to')
    if services.covering(subject):
        raise ShareError(f'latency: "{subject}" is a service of the account itself')
    if export.get("response", "single") != "single":
        raise ShareError("latency is for services with single responses")


@lru_cache(1024)
def _service_pieces(to: str, subject: str, numbers: tuple[int, ...]) -> str:
    """Cached, because very many accounts may have the same import."""
    return pieces_of(to, by_number(subject, numbers), reversible=True)


def named_locally(subject: str, to: str) -> dict[str, Any]:
    """A service's subject in the account that imports it: its wildcards may be named there in any order ("$2.$1").
    Returns fields of the import."""
    if is_literal(subject):
        return {"to": to}
    pattern, numbers = by_star(to)
    return {"to": pattern, "numbers": numbers}


def refuse_cycles(accounts: Sequence[Account], pause: Pause = no_pause) -> None:
    """Raises ShareError when imports form a cycle."""
    for kind in ("stream", "service"):
        imports = Imports(kind)
        for account in accounts:
            imports.exported(
                account["name"], [one["subject"] for one in account.get("exports", ()) if one["kind"] == kind]
            )
        for account in accounts:
            for one in account.get("imports", ()):
                pause()
                if one["kind"] != kind:
                    continue
                why = imports.add(account["name"], Import(one["account"], one["subject"], one["to"]))
                if why is not None:
                    raise ShareError(f'Error adding {kind} import "{one["subject"]}": {why}')


class Lines:
    """The codec's lines of each account, for a server in that cluster: its mappings, the services that it imports, and
    the accounts that import its streams."""

    def __init__(self, number_of: Callable[[str], int], cluster: str = "", pause: Pause = no_pause) -> None:
        self.cluster: Final = cluster
        self._pause = pause
        self._number_of = number_of
        self._exports = Exports()
        self._own: dict[str, str] = {}
        self._given: dict[str, dict[str, str]] = {}  # by exporter and importer: the lines of streams
        self._takes: dict[str, set[str]] = {}  # by importer: the accounts whose streams it imports

    def learn(self, account: Account, by_name: Mapping[str, Account]) -> set[str]:
        """Adds or replaces an account. Returns the accounts whose lines may differ now. Raises ShareError or
        TransformError."""
        name = account["name"]
        own: list[str] = []
        given: dict[str, list[str]] = {}
        for source, to in account.get("mappings", {}).items():
            self._pause()
            own.append(mapping_lines(source, to, self.cluster))
        for one in account.get("imports", ()):
            self._pause()
            exporter = by_name.get(one["account"])
            if exporter is None:
                raise ShareError(f'there is no account "{one["account"]}"')
            export = export_of(self._exports, exporter, one["kind"], one["subject"], name)
            giver = exporter["name"]
            if one["kind"] == "stream":
                given.setdefault(giver, []).append(stream_line(self._number_of(name), one))
            else:
                own.append(service_line(self._number_of(giver), export, one))
        before = self._takes.get(name, set())
        for giver in before - given.keys():
            del self._given[giver][name]
        for giver, lines in given.items():
            self._given.setdefault(giver, {})[name] = "".join(lines)
        self._own[name], self._takes[name] = "".join(own), set(given)
        return {name} | before | given.keys()

    def of(self, name: str) -> str:
        return self._own.get(name, "") + "".join(self._given.get(name, {}).values())


def all_lines(
    accounts: Sequence[Account], number_of: Callable[[str], int], cluster: str = "", pause: Pause = no_pause
) -> Lines:
    """Makes the lines of all accounts, whose imports form no cycle. Raises ShareError or TransformError."""
    by_name = {account["name"]: account for account in accounts}
    lines = Lines(number_of, cluster, pause)
    for account in accounts:
        lines.learn(account, by_name)
    return lines


def trace_of(account: Account) -> str:
    """Where messages with traceparent are traced to, and how many in a hundred: "PERCENT SUBJECT", or ""."""
    said = account.get("trace")
    return f"{said['percent']} {said['subject']}" if said else ""


def needs_info(account: Account) -> bool:
    """Whether some imported service is told who asks."""
    return any(one["kind"] == "service" and one.get("share") for one in account.get("imports", ()))
