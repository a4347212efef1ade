"""Exports, imports and mappings of accounts that are known by JWTs, in the form that shares.py uses.

As by nats-server, an import is left out if the exporter does not grant it or its activation token is not valid; the
other imports still hold. An import whose token expires is left out the next time that the account is looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mq_shards.acceptor.pauses import Pause, no_pause
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats.claims import Account
from mq_shards.acceptor.protocols.nats.cycles import Import, Imports, covers
from mq_shards.acceptor.protocols.nats.json_fields import block, blocks, flag, number, text
from mq_shards.acceptor.protocols.nats.jwt import JwtError
from mq_shards.acceptor.protocols.nats.patterns import Patterns
from mq_shards.acceptor.protocols.nats.shares import (
    Exports,
    ShareError,
    export_of,
    mapping_lines,
    named_locally,
    refuse_latency,
    service_line,
    stream_line,
)
from mq_shards.acceptor.protocols.nats.transforms import TransformError, is_literal

RESPONSES: Final = {"stream": "stream", "chunked": "chunk"}
KINDS: Final = ("stream", "service")

log = logging.getLogger(__name__)

Row = dict[str, Any]


def imported_accounts(account: Account) -> set[str]:
    """The accounts that this account imports from."""
    return {text(one, "account") for one in blocks(account.token.nats, "imports")}


def shares_something(account: Account) -> bool:
    nats = account.token.nats
    return any(blocks(nats, name) for name in ("exports", "imports")) or any(
        block(nats, name) for name in ("mappings", "trace")
    )


def may_jetstream(account: Account) -> bool:
    return _has_jetstream(block(account.token.nats, "limits"))


class Shared:
    """The shares of all accounts. When an account's JWT changes, only that account and those that import from it are
    looked at again. If imports form a cycle, however, all accounts are, since which import is left out depends on
    all of them."""

    def __init__(self, pause: Pause = no_pause) -> None:
        self.rows: dict[str, Row] = {}  # by account
        self._pause = pause
        self._ends: dict[str, float] = {}  # by importer: when the first of its activation tokens expires
        self._wants: dict[str, set[str]] = {}  # by account: the accounts that it wants to import from
        self._takers: dict[str, dict[str, None]] = {}  # by account: the accounts that want to import from it
        self._exports = Exports()
        self._imports = {kind: Imports(kind) for kind in KINDS}
        self._is_cyclic = False

    def look(self, accounts: Mapping[str, Account], now_s: float) -> None:
        """Looks at all accounts. Called once, on an empty object."""
        for name, account in accounts.items():
            self._learn(name, account)
        self._allow(accounts, accounts, now_s)

    def look_at(self, names: Iterable[str], accounts: Mapping[str, Account], now_s: float) -> set[str] | None:
        """Looks at changed accounts. Returns all accounts whose rows may differ now; None: look() at all again."""
        if self._is_cyclic:
            return None
        concerned = dict.fromkeys(names)
        for name in list(concerned):
            concerned |= self._takers.get(name, {})
        touched = set(concerned)
        for name in concerned:
            touched |= self._forget(name)
        for name in names:
            self._learn(name, accounts[name])
        for name in concerned:
            self.rows[name]["imports"] = _imports(accounts[name], self._pause)
            touched |= self._wants[name]
        self._allow(concerned, accounts, now_s)
        return None if self._is_cyclic else touched & self.rows.keys()

    @property
    def end_s(self) -> float:
        """When the first activation token in use expires; 0: never."""
        return min(self._ends.values(), default=0)

    def over(self, now_s: float) -> list[str]:
        """The importers with an activation token that has expired."""
        return [name for name, end_s in self._ends.items() if end_s <= now_s]

    def _learn(self, name: str, account: Account) -> None:
        row = self.rows[name] = _row(account, self._pause)
        for kind, imports in self._imports.items():
            imports.exported(name, [one["subject"] for one in row["exports"] if one["kind"] == kind])
        for exporter in self._wants.get(name, set()):
            del self._takers[exporter][name]
        self._wants[name] = imported_accounts(account)
        for exporter in self._wants[name]:
            self._takers.setdefault(exporter, {})[name] = None

    def _forget(self, name: str) -> set[str]:
        """Forgets what an account imports. Returns the accounts that it imported from."""
        exporters = self._wants.get(name, set())
        self._ends.pop(name, None)
        for imports in self._imports.values():
            imports.forget(name)
        for exporter in exporters & self.rows.keys():
            for export in self.rows[exporter]["exports"]:
                if "accounts" in export:
                    export["accounts"] = [one for one in export["accounts"] if one != name]
        return exporters

    def _allow(self, names: Iterable[str], accounts: Mapping[str, Account], now_s: float) -> None:
        """Removes from the rows of these accounts the imports that are not allowed."""
        for name in names:
            tokens = _activate(accounts[name], accounts, self.rows, self._exports, now_s, self._pause)
            if ends := [token.expires_s for token in tokens if token.expires_s]:
                self._ends[name] = min(ends)
        for kind, imports in self._imports.items():
            for name in names:
                row = self.rows[name]
                row["imports"] = [
                    one for one in row["imports"] if one["kind"] != kind or self._may_be(one, name, imports)
                ]

    def _may_be(self, one: Row, importer: str, imports: Imports) -> bool:
        self._pause()
        try:
            _must_be_given(one, importer, self.rows, self._exports)
            if why := imports.add(importer, Import(one["account"], one["subject"], one["to"])):
                self._is_cyclic = True
                raise ShareError(why)
        except (ShareError, TransformError) as error:
            log.warning("account %s: an import is left out: %s", importer, error)
            return False
        return True


def _row(account: Account, pause: Pause) -> Row:
    nats = account.token.nats
    return {
        "name": account.name,
        "exports": _exports(account, pause),
        "imports": _imports(account, pause),
        "mappings": _mappings(account, pause),
        "jetstream": _has_jetstream(block(nats, "limits")),
        **_trace(block(nats, "trace")),
    }


def _imports(account: Account, pause: Pause) -> list[Row]:
    found: list[Row] = []
    for said in blocks(account.token.nats, "imports"):
        pause()
        if one := _import(said):
            found.append(one)
    return found


def _trace(said: Mapping[str, Any]) -> Row:
    subject, percent = text(said, "dest"), number(said, "sampling")
    if not is_literal(subject):
        return {}
    return {"trace": {"subject": subject, "percent": percent if 0 < percent <= 100 else 100}}


def _has_jetstream(limits: Mapping[str, Any]) -> bool:
    return bool(block(limits, "tiered_limits")) or any(number(limits, name) for name in ("mem_storage", "disk_storage"))


def _exports(account: Account, pause: Pause) -> list[Row]:
    found: list[Row] = []
    services: Patterns[Row] = Patterns()
    for one in [row for said in blocks(account.token.nats, "exports") if (row := _export(said))]:
        pause()
        found.append(one)
        if one["kind"] == "service":
            services.add(one["subject"], one)
        try:
            if "latency" in one:
                refuse_latency(one, services)
        except ShareError as error:
            log.warning("account %s: a service is not measured: %s", account.name, error)
            del one["latency"]
    return found


def _latency(said: Mapping[str, Any]) -> Row:
    """As conf_shares.py has it."""
    latency = block(said, "service_latency")
    percent = 0 if latency.get("sampling") == "headers" else number(latency, "sampling")
    if not latency or not 0 <= percent <= 100:
        return {}
    return {"latency": {"subject": text(latency, "results"), "percent": percent}}


def _export(said: Mapping[str, Any]) -> Row | None:
    kind, subject = text(said, "type"), text(said, "subject")
    if kind not in KINDS or not subject:
        return None
    found: Row = {"kind": kind, "subject": subject, "revocations": block(said, "revocations")}
    if flag(said, "token_req"):
        found["accounts"] = []  # importers with a valid token are added later
    if place := number(said, "account_token_position"):
        found["token_position"] = place
    if kind == "service":
        found["response"] = RESPONSES.get(text(said, "response_type").lower(), "single")
        found["threshold_ns"] = number(said, "response_threshold")
        found["allow_trace"] = flag(said, "allow_trace")
        found |= _latency(said)
    return found


def _import(said: Mapping[str, Any]) -> Row | None:
    kind, subject, account = text(said, "type"), text(said, "subject"), text(said, "account")
    local, to = text(said, "local_subject"), text(said, "to")
    if kind not in KINDS or not subject or not account:
        return None
    found: Row = {"kind": kind, "account": account, "share": flag(said, "share"), "token": text(said, "token")}
    if kind == "stream":
        found["allow_trace"] = flag(said, "allow_trace")
        # Without local_subject, `to` is a prefix, as older JWTs have it.
        return {**found, "subject": subject, "to": local or (f"{to}.{subject}" if to else subject)}
    if local:
        return {**found, "subject": subject, **named_locally(subject, local)}
    return {**found, "subject": to or subject, "to": subject}


def _mappings(account: Account, pause: Pause) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for source in block(account.token.nats, "mappings"):
        pause()
        destinations = [
            {
                "subject": text(one, "subject"), "weight": number(one, "weight") or 100,
                **({"cluster": cluster} if (cluster := text(one, "cluster")) else {}),
            }
            for one in blocks(block(account.token.nats, "mappings"), source)
        ]  # fmt: skip
        try:
            mapping_lines(source, destinations, "")
        except TransformError as error:
            log.warning("account %s: a mapping is left out: %s", account.name, error)
        else:
            found[source] = destinations
    return found


# --- which imports are allowed ----------------------------------------------------------------------------------------


def _activate(
    account: Account,
    accounts: Mapping[str, Account],
    rows: Mapping[str, Row],
    exports: Exports,
    now_s: float,
    pause: Pause,
) -> Iterable[nats_jwt.Token]:
    """Adds an account to the private exports that its tokens are valid for. Yields those tokens."""
    for one in rows[account.name]["imports"]:
        pause()
        exporter = accounts.get(one["account"])
        if exporter is None or not one["token"] or exporter.name not in rows:
            continue
        for export in exports.covering(rows[exporter.name], one["kind"], one["subject"]):
            if "accounts" not in export:
                continue
            try:
                token = _activation(one, account, exporter, export, now_s)
            except JwtError as error:
                log.warning("account %s: its token for %s does not count: %s", account.name, one["subject"], error)
                continue
            export["accounts"].append(account.name)
            one["activated"] = True
            yield token


def _activation(one: Row, account: Account, exporter: Account, export: Row, now_s: float) -> nats_jwt.Token:
    token = nats_jwt.decode(one["token"], nats_jwt.ACTIVATION)
    if token.issuer_account != exporter.name or token.issuer not in {exporter.name, *exporter.signing_keys}:
        raise JwtError("its issuer is not the account that exports")
    if token.subject != account.name:
        raise JwtError("it is for another account")
    if text(token.nats, "kind") != one["kind"]:
        raise JwtError(f"it is for a {text(token.nats, 'kind')}")
    if not covers(text(token.nats, "subject"), one["subject"]):
        raise JwtError(f'it is for "{text(token.nats, "subject")}"')
    if not token.counts_at(now_s):
        raise JwtError("it has expired")
    if nats_jwt.is_revoked(export["revocations"], token.subject, token.issued_s):
        raise JwtError("it was revoked")
    return token


def _must_be_given(one: Row, importer: str, rows: Mapping[str, Row], exports: Exports) -> None:
    """Raises ShareError or TransformError when the exporter does not grant an import."""
    exporter = rows.get(one["account"])
    if exporter is None:
        raise ShareError(f'there is no account "{one["account"]}"')
    export = export_of(exports, exporter, one["kind"], one["subject"], importer)
    if "accounts" in export and not one.get("activated"):
        raise ShareError(f'there is no token for {one["kind"]} "{one["subject"]}"')
    if one["kind"] == "stream":
        stream_line(1, one)
    else:
        service_line(1, export, one)
