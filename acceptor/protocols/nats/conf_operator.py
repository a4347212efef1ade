"""Operator mode in nats-server's configuration file: which operators are trusted, and where account JWTs are.

The result is stored in Conf.content["operator"], in the form that operator.py reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.protocols.nats import json_fields
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_directory import directory
from mq_shards.acceptor.protocols.nats.conf_operating import only_of_routes, tls_block
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, Taker, option, take_block
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.tls import resolver_context

# A JWT in a file as nsc writes it, between decorating lines.
DECORATED: Final = re.compile(r"-{3,}BEGIN [^\n-]*JWT-{3,}\s*(\S+)\s*-{3,}END")
URL: Final = re.compile(r"url\(\s*[\"']?(\S+?)[\"']?\s*\)", re.IGNORECASE)
SCHEMES: Final = ("http://", "https://")


def _wanted(conf: Conf) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "trusted_keys": [], "strict": [], "pinned": [], "preload": {}, "url": "", "directory": None, "sentinel": "",
        "system_account": "", "tls": None,
    }  # fmt: skip
    found: dict[str, Any] = conf.content.setdefault("operator", empty)
    return found


def _decoded(value: Value, jwt: str, kind: str) -> Token:
    try:
        return nats_jwt.decode(jwt, kind)
    except JwtError as error:
        raise value.error(f"no JWT of an {kind}: {error}") from None


def _key(value: Value, text: str, kind: int, of: str) -> str:
    if not nats_nkeys.is_public(kind, text):
        raise value.error(f'"{text}" is not the public key of an {of}')
    return text


def _take_operator(conf: Conf, value: Value) -> None:
    """Reads operators: each is a JWT, or the name of a file with one."""
    wanted = _wanted(conf)
    for item in value.items() if isinstance(value.content, list) else [value]:
        text = item.text()
        if not text.startswith("eyJ"):
            try:
                text = named_files.read(text).decode("ascii")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "not a JWT"
                raise item.error(f"cannot read the operator's JWT {item.content}: {why}") from None
        match = DECORATED.search(text)
        token = _decoded(item, match[1] if match else text.strip(), nats_jwt.OPERATOR)
        is_strict = json_fields.flag(token.nats, "strict_signing_key_usage")
        keys = json_fields.texts(token.nats, "signing_keys")
        wanted["trusted_keys"] += [*keys] if is_strict else [token.subject, *keys]
        wanted["strict"] += [token.subject, *keys] if is_strict else []
        wanted["system_account"] = wanted["system_account"] or json_fields.text(token.nats, "system_account")
        server = json_fields.text(token.nats, "account_server_url")
        if conf.resolver is None and server.startswith(SCHEMES):
            conf.resolver, wanted["url"] = item, _with_slash(f"{server.rstrip('/')}/accounts")


def _take_trusted_keys(conf: Conf, value: Value) -> None:
    texts = [value.text()] if isinstance(value.content, str) else value.texts()
    _wanted(conf)["trusted_keys"] += [_key(value, text, nats_nkeys.OPERATOR, "operator") for text in texts]


def _take_resolver(conf: Conf, value: Value) -> None:
    wanted = _wanted(conf)
    conf.resolver, wanted["url"] = value, ""  # overrides the URL in the operator's JWT
    if isinstance(value.content, dict):
        wanted["directory"] = directory(conf, value)
        return
    if value.text().upper() in ("MEM", "MEMORY"):
        return
    match = URL.fullmatch(value.text().strip())
    if match is None or not match[1].startswith(SCHEMES):
        raise value.error(f'"{value.content}" is not MEMORY or URL(http://...)')
    wanted["url"] = _with_slash(match[1])


def _with_slash(url: str) -> str:
    """A URL to which an account's key can be appended."""
    return url if url.endswith("/") else f"{url}/"


def _take_preload(conf: Conf, value: Value) -> None:
    wanted = _wanted(conf)
    for name, item in value.block().items():
        _key(item, name, nats_nkeys.ACCOUNT, "account")
        if _decoded(item, item.text(), nats_jwt.ACCOUNT).subject != name:
            raise item.error(f"the JWT is not of account {name}")
        wanted["preload"][name] = item.text()


def _take_pinned(conf: Conf, value: Value) -> None:
    _wanted(conf)["pinned"] = [_key(value, text, nats_nkeys.ACCOUNT, "account") for text in value.texts()]


def _take_sentinel(conf: Conf, value: Value) -> None:
    token = _decoded(value, value.text(), nats_jwt.USER)
    is_scoped = token.issuer_account != token.issuer
    if not json_fields.flag(token.nats, "bearer_token") and not is_scoped:
        raise value.error("default_sentinel must be a bearer token")
    _wanted(conf)["sentinel"] = value.text()


_NOT_HERE: Final = "it is about connections that are accepted"
RESOLVER_TLS: Final[Mapping[str, Taker]] = {
    **tls_block("tls-", dict.fromkeys(("verify_and_map", "connection_rate_limit", "handshake_first"), _NOT_HERE)),
    "insecure": option("insecure", Value.flag),
    "verify_cert_and_check_known_urls": only_of_routes,
}


def _take_resolver_tls(conf: Conf, value: Value) -> None:
    """Reads the block for connections to a resolver's URL. Unusable files are errors now, before anything starts."""
    said = Conf()
    take_block(said, value.block(), RESOLVER_TLS, " in resolver_tls")
    conf.warnings += said.warnings
    tls = {name: content for name, (_, content) in said.options.items()}
    try:
        resolver_context(tls)
    except ValueError as error:
        raise value.error(f"resolver_tls: {error}") from None
    _wanted(conf)["tls"] = tls


OPERATOR: Final[Mapping[str, Taker]] = {
    **dict.fromkeys(("operator", "operators", "roots", "root", "root_operators", "root_operator"), _take_operator),
    **dict.fromkeys(("trusted_keys", "trusted"), _take_trusted_keys),
    **dict.fromkeys(("resolver", "account_resolver", "accounts_resolver"), _take_resolver),
    "resolver_preload": _take_preload,
    "resolver_tls": _take_resolver_tls,
    "resolver_pinned_accounts": _take_pinned,
    "default_sentinel": _take_sentinel,
}


def finish_operator(conf: Conf) -> None:
    """Call after the whole file has been read, and before the finish() of accounts and users."""
    wanted = conf.content.get("operator")
    if wanted is None:
        return
    if not wanted["trusted_keys"]:
        del conf.content["operator"]  # without an operator a resolver has no effect
        return
    where = conf.resolver
    if where is None:
        raise conf.error_at(conf.file, "operators require an account resolver to be configured")
    if conf.accounts:
        raise where.error("operators do not allow accounts to be configured directly")
    if conf.users:
        raise where.error("operators do not allow users to be configured directly")
    if conf.system_account is not None:
        said = conf.system_account.text()
        if wanted["system_account"] and said != wanted["system_account"]:
            raise conf.system_account.error("system_account in config and operator JWT must be identical")
        wanted["system_account"] = _key(conf.system_account, said, nats_nkeys.ACCOUNT, "account")
        conf.system_account = None
    if wanted["directory"] and not wanted["system_account"]:
        raise where.error("a resolver with a directory needs a system_account, in the file or in the operator's JWT")
    if wanted["pinned"] and wanted["system_account"]:
        wanted["pinned"].append(wanted["system_account"])
