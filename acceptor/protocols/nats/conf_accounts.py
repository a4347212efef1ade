"""The block "accounts" of nats-server's configuration file: accounts, their limits and users, and what they share.

Accounts are stored in Conf.accounts, in the form that who.py and shares.py read. Their users are added to Conf.users.
"""

from __future__ import annotations

from typing import Any, Final

from mq_shards.acceptor.protocols.nats import conf_shares as nats_conf_shares
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Block, Value
from mq_shards.acceptor.protocols.nats.conf_auth import apply_defaults, permissions, take_users
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, percent_of
from mq_shards.acceptor.protocols.nats.conf_users import name_of
from mq_shards.acceptor.protocols.nats.shares import ShareError, all_lines, refuse_cycles
from mq_shards.acceptor.protocols.nats.transforms import TransformError, is_literal
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT

# The user of clients without credentials, added when the file has no accounts but the system account.
NOBODY: Final = {"name": "nats-nobody", "password": "nobody", "account": GLOBAL_ACCOUNT}

LIMITS: Final = {
    "max_connections": "connections", "max_conn": "connections", "max_subscriptions": "subscriptions",
    "max_subs": "subscriptions", "max_payload": "payload", "max_pay": "payload",
    "max_leafnodes": "leafnodes", "max_leafs": "leafnodes",
}  # fmt: skip


def take_accounts(conf: Conf, value: Value) -> None:
    conf.accounts_value = value
    if isinstance(value.content, list):
        for item in value.content:
            _add(conf, item, item.text())
        return
    for name, account in value.block().items():
        if not account.referenced:
            _take_account(conf, account, name)


def _add(conf: Conf, value: Value, name: str) -> dict[str, Any]:
    if name == GLOBAL_ACCOUNT:
        raise value.error(f'"{name}" is there anyway, and cannot be defined')
    if name in conf.accounts:
        raise value.error(f'account "{name}" is there twice')
    found = conf.accounts[name] = {"name": name}
    return found


def _take_account(conf: Conf, value: Value, name: str) -> None:
    found = _add(conf, value, name)
    users: list[dict[str, Any]] = []
    defaults: dict[str, Any] | None = None
    for key, item in value.block().items():
        match key.lower():
            case "users":
                users = take_users(conf, item, name)
            case "default_permissions":
                defaults = permissions(item)
            case "limits":
                found["limits"] = _limits(item.block())
            case "nkey":
                if not nats_nkeys.is_public(nats_nkeys.ACCOUNT, item.text()):
                    raise item.error(f'"{item.text()}" is not the public key of an account')
            case "jetstream":
                if item.content is not False and item.content not in ("disabled", "disable"):
                    conf.warn(item, "jetstream is not supported: topics of this broker are durable")
                    found["jetstream"] = True  # other servers of the cluster may have JetStream
            case "msg_trace" | "trace_dest":
                found["trace"] = _trace(item)
            case "exports":
                found["exports"] = nats_conf_shares.exports(item)
            case "imports":
                found["imports"] = nats_conf_shares.imports(conf, item)
            case "mappings" | "maps":
                found["mappings"] = nats_conf_shares.mappings(item)
            case _ if not item.referenced:
                raise item.error(f'unknown key "{key}" of an account')
    apply_defaults(users, defaults)


def _trace(value: Value) -> dict[str, Any]:
    """Where messages with traceparent are traced to: a subject, or {dest: "subject", sampling: "10%"}."""
    if isinstance(value.content, str):
        return {"subject": _literal(value), "percent": 100}
    found: dict[str, Any] = {"subject": "", "percent": 100}
    for key, item in value.block().items():
        match key.lower():
            case "dest":
                found["subject"] = _literal(item)
            case "sampling":
                found["percent"] = percent_of(item)
            case _ if not item.referenced:
                raise item.error(f'unknown key "{key}" of msg_trace')
    return found if found["subject"] else {}


def _literal(value: Value) -> str:
    subject = value.text()
    if not is_literal(subject):
        raise value.error(f'trace destination "{subject}" is not valid')
    return subject


def _limits(block: Block) -> dict[str, int]:
    """A negative limit means no limit, like a missing one."""
    found: dict[str, int] = {}
    for key, item in block.items():
        if key.lower() in LIMITS:
            if item.whole() >= 0:
                found[LIMITS[key.lower()]] = item.whole()
        elif not item.referenced:
            raise item.error(f'unknown key "{key}" of limits')
    return found


def take_mappings(conf: Conf, value: Value) -> None:
    """Reads the mappings of the global account."""
    conf.accounts_value = conf.accounts_value or value
    conf.mappings = nats_conf_shares.mappings(value)


def take_system_account(conf: Conf, value: Value) -> None:
    value.text()
    conf.system_account = value


def finish(conf: Conf) -> None:
    """Call after the whole file has been read, and before conf_auth's finish(), which uses the users."""
    who = conf.content.setdefault("who", {})
    system = conf.system_account.text() if conf.system_account is not None else ""
    if system and system not in conf.accounts and system != SYSTEM_ACCOUNT:
        assert conf.system_account is not None
        raise conf.system_account.error(f'there is no account "{system}"')
    if not system and SYSTEM_ACCOUNT in conf.accounts:
        system = SYSTEM_ACCOUNT
    is_alone = system != "" and set(conf.accounts) <= {system}
    if is_alone and not conf.has_authorization and conf.no_auth_user is None:
        conf.users.append(dict(NOBODY))
        who["no_auth_user"] = name_of(NOBODY)
        who["no_auth_is_ours"] = True
    who["system_account"] = system or SYSTEM_ACCOUNT
    who["accounts"] = list(conf.accounts.values())
    if conf.mappings:
        who["accounts"].append({"name": GLOBAL_ACCOUNT, "mappings": conf.mappings})
    if conf.accounts_value is not None:
        try:
            refuse_cycles(who["accounts"])
            all_lines(who["accounts"], lambda name: 1)
        except (ShareError, TransformError) as error:
            raise conf.accounts_value.error(str(error)) from None
