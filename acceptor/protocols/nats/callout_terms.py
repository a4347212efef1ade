"""The terms of an auth callout: the service's account, the clients it decides about, and which answers count. They are
from the configuration file, or in operator mode from an account's JWT. callout.py makes the requests.

    FileTerms       the block "auth_callout": one service, for all clients but its auth_users
    AccountTerms    "authorization" in an account's JWT: one service, for the account's users but its auth_users
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.protocols.nats import json_fields
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats.claims import Account, connection_types_of, is_now, permissions_of, user_of
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT, AccountLimits, User

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.callout import Took
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.operator import Operator

ANY_ACCOUNT: Final = "*"


class FileTerms:
    def __init__(self, content: Mapping[str, Any], accounts: Callable[[], Collection[str]]) -> None:
        """`content` is from conf_callout.py. `accounts` returns the names of all accounts."""
        self.content: Final = content
        self.account: Final[str] = content["account"]
        self.about: Final[str] = content["issuer"]
        self.xkey: Final[str] = content["xkey"]
        self._users = frozenset(content["users"])
        self._allowed = frozenset(content["allowed_accounts"])
        self._accounts = accounts

    def decides(self, user: User | None, claimed: str) -> bool:
        """Whether the service is asked about a client. `claimed` is the name of the user that it claims to be;
        `user` is that user of the file if the client has proven it."""
        account = user.account if user is not None else GLOBAL_ACCOUNT
        if account != GLOBAL_ACCOUNT and self._allowed and account not in self._allowed:
            return False
        return self.is_for(claimed)

    def is_for(self, name: str) -> bool:
        return name not in self._users

    def said(self, client: Client) -> Mapping[str, Any]:
        """Leaves out the JWT, which means nothing without an operator."""
        return {name: value for name, value in client.options.items() if name != "jwt"}

    def known(self, client: Client) -> Mapping[str, Any]:
        return {}

    def check_signer(self, answer: Token) -> None:
        if answer.issuer != self.about:
            raise JwtError("the key that has signed the answer is unknown")

    def take(self, token: Token, client: Client, took: Took) -> None:
        took(_or_error(self._taken, token, client))

    def _taken(self, token: Token, client: Client) -> User:
        if json_fields.text(token.nats, "issuer_account"):
            raise JwtError("attempted to use issuer_account")
        if token.issuer != self.about:
            raise JwtError(f"wrong issuer, expected {self.about} got {token.issuer}")
        if token.audience not in self._accounts():
            raise JwtError(f'no valid account "{token.audience}"')
        found = User(account=token.audience, permissions=permissions_of(token.nats))
        return _let_in(found, token, token.nats, client)


class AccountTerms:
    def __init__(self, operator: Callable[[], Operator | None], account: Account) -> None:
        """`operator` returns the current operator, or None."""
        self.account: Final = account.name
        self.about: Final = account.name
        authorization = authorization_of(account)
        self.xkey: Final = json_fields.text(authorization, "xkey")
        self._allowed = json_fields.texts(authorization, "allowed_accounts")
        self._operator = operator

    def said(self, client: Client) -> Mapping[str, Any]:
        operator = self._operator()
        return client.options if operator is None else {**client.options, "jwt": operator.jwt_of(client)}

    def known(self, client: Client) -> Mapping[str, Any]:
        token = nats_jwt.decode(self.said(client)["jwt"], nats_jwt.USER)
        return {"user": token.subject, "tags": list(token.tags), "name_tag": token.name}

    def check_signer(self, answer: Token) -> None:
        operator = self._operator()
        account = None if operator is None else operator.accounts.get(self.account)
        if json_fields.text(answer.nats, "issuer_account") not in ("", self.account):
            raise JwtError("the answer's account is not that of the service")
        if account is None or (answer.issuer != self.account and answer.issuer not in account.signing_keys):
            raise JwtError("the key that has signed the answer is unknown")

    def take(self, token: Token, client: Client, took: Took) -> None:
        """The user must be of the service's account or of one that its `allowed_accounts` names."""
        name, allowed, operator = token.issuer_account, self._allowed, self._operator()
        if operator is None or (name != self.account and name not in allowed and allowed != [ANY_ACCOUNT]):
            took(JwtError(f"it may let in nobody of account {name}"))
            return
        operator.find(name, client.host, lambda account: took(_or_error(_user_of, token, account, client)))


def authorization_of(account: Account) -> Mapping[str, Any]:
    """The block `authorization` of an account's JWT; empty when the account has no callout service."""
    found = json_fields.block(account.token.nats, "authorization")
    return found if json_fields.texts(found, "auth_users") else {}


def _user_of(token: Token, account: Account | None, client: Client) -> User:
    if account is None:
        raise JwtError(f"there is no account {token.issuer_account}")
    found = user_of(token, account)
    # The limits in such a JWT are ignored, as by nats-server.
    found = found._replace(limits=AccountLimits(), issuer=token.issuer, issued_s=token.issued_s, bearer=False)
    return _let_in(found, token, account.signing_keys[token.issuer] or token.nats, client)


def _let_in(found: User, token: Token, said: Mapping[str, Any], client: Client) -> User:
    """`said`: the user's claims, of the token or of the scope of its signing key. Raises JwtError when refused."""
    now_s = time.time()
    if not token.lets_in_at(now_s):
        raise JwtError("the user's JWT has expired")
    there, for_s = is_now(said, now_s)
    if not there:
        raise JwtError("outside of valid connect times")
    if json_fields.flag(said, "proxy_required"):
        raise JwtError("there are no trusted proxies")
    types = connection_types_of(said)
    if types and client.connection_type not in types:
        raise JwtError("Connection type not allowed")
    return found._replace(
        name=token.name, nkey="" if token.name else token.subject, connection_types=types,
        until_s=token.user_end_s(now_s, for_s), is_called_out=True,
    )  # fmt: skip


def _or_error(make: Callable[..., User], *arguments: object) -> User | JwtError:
    try:
        return make(*arguments)
    except JwtError as error:
        return error
