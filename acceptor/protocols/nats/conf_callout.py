"""The block "auth_callout" of nats-server's configuration file: the service that admits clients (callout.py)."""

from __future__ import annotations

from typing import Any

from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_takers import Conf
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT


def take_callout(conf: Conf, value: Value) -> None:
    found: dict[str, Any] = {"account": GLOBAL_ACCOUNT, "issuer": "", "users": [], "allowed_accounts": [], "xkey": ""}
    for key, item in value.block().items():
        match key.lower():
            case "issuer":
                found["issuer"] = item.text()
                if not nats_nkeys.is_public(nats_nkeys.ACCOUNT, item.text()):
                    raise item.error(f'"{item.text()}" is not the public key of an account')
            case "account" | "acc":
                found["account"] = item.text() or GLOBAL_ACCOUNT
            case "auth_users" | "users":
                found["users"] = item.texts()
            case "allowed_accounts":
                found["allowed_accounts"] = item.texts()
                conf.callout_accounts = item
            case "xkey" | "key":
                found["xkey"] = item.text()
                if not nats_nkeys.is_public(nats_nkeys.CURVE, item.text()):
                    raise item.error(f'"{item.text()}" is not the public key of an xkey')
            case _ if not item.referenced:
                raise item.error(f'unknown key "{key}" of auth_callout')
    if not found["issuer"]:
        raise value.error("auth_callout needs an issuer")
    if not found["users"]:
        raise value.error("auth_callout needs auth_users")
    conf.content.setdefault("who", {})["callout"] = found


def finish(conf: Conf) -> None:
    """Call when all accounts are known."""
    for name in conf.content.get("who", {}).get("callout", {}).get("allowed_accounts", ()):
        if name not in conf.accounts:
            assert conf.callout_accounts is not None
            raise conf.callout_accounts.error(f'there is no account "{name}"')
