"""What accounts that are known by JWTs share: the form in which shares.py has it, and only what may be.

A nats-server leaves out an import that its exporter does not give, or whose activation token does not count, and goes
on with the others; so does this. What expires is left out when this is looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats.claims import Account
from mq_shards.acceptor.protocols.nats.cycles import Import, Imports, covers
from mq_shards.acceptor.protocols.nats.jwt import JwtError, block, blocks, flag, number, text
from mq_shards.acceptor.protocols.nats.shares import (
    ShareError,
    export_of,
    mapping_lines,
    service_line,
    stream_line,
)
from mq_shards.acceptor.protocols.nats.transforms import TransformError

RESPONSES: Final = {"stream": "stream", "chunked": "chunk"}
KINDS: Final = ("stream", "service")

log = logging.getLogger(__name__)

Row = dict[str, Any]


def imported_accounts(account: Account) -> set[str]:
    """Those that it takes something from."""
    return {text(one, "account") for one in blocks(account.token.nats, "imports")}


def shares_something(account: Account) -> bool:
    nats = account.token.nats
    return bool(blocks(nats, "exports") or blocks(nats, "imports") or block(nats, "mappings"))


def may_jetstream(account: Account) -> bool:
    return _has_jetstream(block(account.token.nats, "limits"))


def shared(accounts: Mapping[str, Account], now_s: float) -> tuple[list[Row], float]:
    """Of all of them together, and when a token of these expires first; 0: never."""
    rows = {name: _row(account) for name, account in accounts.items()}
    activations = [
        token for account in accounts.values() for token in _activate(account, accounts, rows, now_s)
    ]
    for kind in KINDS:
        imports = Imports(kind, {
            name: [one["subject"] for one in row["exports"] if one["kind"] == kind] for name, row in rows.items()
        })  # fmt: skip
        for name, row in rows.items():
            row["imports"] = [
                one for one in row["imports"] if one["kind"] != kind or _may_be(one, name, rows, imports)
            ]
    return list(rows.values()), min((token.expires_s for token in activations if token.expires_s), default=0)


def _row(account: Account) -> Row:
    nats = account.token.nats
    return {
        "name": account.name,
        "exports": [one for said in blocks(nats, "exports") if (one := _export(said))],
        "imports": [one for said in blocks(nats, "imports") if (one := _import(said))],
        "mappings": _mappings(account),
        "jetstream": _has_jetstream(block(nats, "limits")),
    }


def _has_jetstream(limits: Mapping[str, Any]) -> bool:
    return bool(block(limits, "tiered_limits")) or any(number(limits, name) for name in ("mem_storage", "disk_storage"))


def _export(said: Mapping[str, Any]) -> Row | None:
    kind, subject = text(said, "type"), text(said, "subject")
    if kind not in KINDS or not subject:
        return None
    found: Row = {"kind": kind, "subject": subject, "revocations": block(said, "revocations")}
    if flag(said, "token_req"):
        found["accounts"] = []  # those whose tokens count come to it
    if place := number(said, "account_token_position"):
        found["token_position"] = place
    if kind == "service":
        found["response"] = RESPONSES.get(text(said, "response_type").lower(), "single")
        found["threshold_ns"] = number(said, "response_threshold")
    return found


def _import(said: Mapping[str, Any]) -> Row | None:
    kind, subject, account = text(said, "type"), text(said, "subject"), text(said, "account")
    local, to = text(said, "local_subject"), text(said, "to")
    if kind not in KINDS or not subject or not account:
        return None
    found: Row = {"kind": kind, "account": account, "share": flag(said, "share"), "token": text(said, "token")}
    if kind == "stream":
        # Without a subject of its own: a prefix, as was usual once.
        return {**found, "subject": subject, "to": local or (f"{to}.{subject}" if to else subject)}
    if local:
        return {**found, "subject": subject, "to": local}
    return {**found, "subject": to or subject, "to": subject}


def _mappings(account: Account) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for source in block(account.token.nats, "mappings"):
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


# --- what may be taken ------------------------------------------------------------------------------------------------


def _activate(
    account: Account, accounts: Mapping[str, Account], rows: Mapping[str, Row], now_s: float
) -> Iterable[nats_jwt.Token]:
    """Puts an account to those that private exports are for, as its tokens allow; the tokens that did."""
    for one in rows[account.name]["imports"]:
        exporter = accounts.get(one["account"])
        if exporter is None or not one["token"]:
            continue
        for export in rows[exporter.name]["exports"]:
            is_private = "accounts" in export and export["kind"] == one["kind"]
            if not is_private or not covers(export["subject"], one["subject"]):
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


def _may_be(one: Row, importer: str, rows: Mapping[str, Row], imports: Imports) -> bool:
    exporter = rows.get(one["account"])
    try:
        if exporter is None:
            raise ShareError(f'there is no account "{one["account"]}"')
        export = export_of(exporter, one["kind"], one["subject"], importer)
        if "accounts" in export and not one.get("activated"):
            raise ShareError(f'there is no token for {one["kind"]} "{one["subject"]}"')
        if one["kind"] == "stream":
            stream_line(1, one["subject"], one["to"])
        else:
            service_line(1, export, one["subject"], one["to"], one["share"])
        if why := imports.add(importer, Import(one["account"], one["subject"], one["to"])):
            raise ShareError(why)
    except (ShareError, TransformError) as error:
        log.warning("account %s: an import is left out: %s", importer, error)
        return False
    return True
