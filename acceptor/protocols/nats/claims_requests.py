"""Requests about the account JWTs of a directory, in the system account: this server answers those of users and of
other servers, and asks other servers itself.

    $SYS.REQ.CLAIMS.UPDATE, $SYS.REQ.ACCOUNT.<account>.CLAIMS.UPDATE    stores a JWT, which all acceptors then obey
    $SYS.REQ.CLAIMS.DELETE                                              deletes accounts of a list the operator signed
    $SYS.REQ.CLAIMS.LIST                                                lists the accounts
    $SYS.REQ.ACCOUNT.<account>.CLAIMS.LOOKUP                            returns one account's JWT
    $SYS.REQ.CLAIMS.PACK                                                sends all JWTs, if the asking server has others

One acceptor answers these and writes to the directory; each acceptor looks up accounts that it misses. A directory
that is a cache stores only accounts that were asked for, and answers neither LOOKUP nor PACK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.directory import StoreError
from mq_shards.acceptor.protocols.nats.jwt import JwtError

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.dir_resolver import DirResolver, Failure, Found
    from mq_shards.acceptor.protocols.nats.operator import Operator
    from mq_shards.acceptor.protocols.nats.own_client import OwnClient
    from mq_shards.acceptor.protocols.nats.updates import Updates

ALWAYS: Final = (
    "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.DELETE",
)  # fmt: skip
IF_FULL: Final = ("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP",)
PACK: Final = "$SYS.REQ.CLAIMS.PACK"
PACKERS: Final = "responder"  # the queue group of the servers that answer PACK
PACKED_AT_ONCE: Final = 64
LEARNED_AT_ONCE: Final = 16  # JWTs read in one go, between other requests
MAX_PACKS: Final = 16  # being sent at one time
EXPIRE_S: Final = 60.0  # between searches for expired JWTs

Row = dict[str, Any]

log = logging.getLogger(__name__)


class ClaimsRequests:
    def __init__(
        self, resolver: DirResolver, terms: Mapping[str, Any], server: Callable[[], Row], inbox: str,
        others: Callable[[], bool], *, answers: bool,
    ) -> None:  # fmt: skip
        """`inbox`: the prefix of subjects for replies to this acceptor. `others` returns whether other servers are or
        were known. `answers`: this is the acceptor that answers requests and writes to the directory."""
        self._resolver = resolver
        self.directory: Final = resolver.directory
        self._server = server
        self._others = others
        self._answers = answers
        self._is_cache = self.directory.is_cache
        self._interval_s = terms["interval_ns"] / 1e9
        self._timeout_s = terms["timeout_ns"] / 1e9
        self._client: OwnClient | None = None
        self._operator: Operator | None = None
        self._updates: Updates | None = None
        self._inbox = inbox
        self._numbers = count()
        self._lookups: dict[str, tuple[str, float, Found]] = {}  # by token: account, deadline, callback
        self._packs = 0
        self._next_expiry_s = self._next_pack_s = 0.0

    def begin(self, operator: Operator, updates: Updates, preload: Mapping[str, str]) -> None:
        """`preload`: JWTs by account, of the configuration file, which are stored as well."""
        self._operator, self._updates = operator, updates
        if self._answers:
            self._resolver.do(self.directory.scan, self._learn)
        for account, jwt in preload.items():
            self.keep(account, jwt)

    def _learn(self, keys: object) -> None:
        if isinstance(keys, list) and keys:
            piece, rest = keys[:LEARNED_AT_ONCE], keys[LEARNED_AT_ONCE:]
            self._resolver.do(lambda: self.directory.learn(piece, time.time()), lambda _: self._learn(rest))

    def serve(self, client: OwnClient) -> None:
        """Serves with this client from now on; it may have subscribed before."""
        self._client = client
        client.subscribe(f"{self._inbox}.*")
        if not self._answers:
            return
        for subject in (*ALWAYS, *(() if self._is_cache else IF_FULL)):
            client.subscribe(subject)
        if not self._is_cache:
            client.subscribe(PACK, PACKERS)
        self._next_expiry_s = time.monotonic() + EXPIRE_S
        self._next_pack_s = time.monotonic() + self._interval_s

    # --- requests to other servers ----------------------------------------------------------------------------------

    def lookup(self, account: str, found: Found) -> None:
        """Asks other servers for an account's JWT, and calls found(jwt); "" if none of them answers in time."""
        if self._client is None or not self._others():
            found("")
            return
        token = f"{next(self._numbers)}"
        self._lookups[token] = account, time.monotonic() + self._timeout_s, found
        self._client.publish(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP", b"", f"{self._inbox}.{token}")

    def _answered(self, token: str, body: bytes) -> None:
        if token == "pack":
            self._merge(body)
        elif token in self._lookups and body:
            account, _, found = self._lookups[token]
            jwt = body.decode(errors="replace")
            if self._why_not(account, jwt) is None:
                del self._lookups[token]
                found(jwt)

    def _merge(self, body: bytes) -> None:
        """Stores JWTs of another server's reply to PACK; each line is an account, "|" and its JWT."""
        for line in body.decode(errors="replace").split("\n"):
            account, _, jwt = line.partition("|")
            if account and not self._resolver.is_busy:
                self.keep(account, jwt)

    def keep(self, account: str, jwt: str) -> None:
        """Stores a JWT from elsewhere unless a newer one is stored, and tells all acceptors if it is news."""
        if not self._answers or self._why_not(account, jwt) is not None:
            return

        def kept(found: str | Failure) -> None:
            if isinstance(found, str):
                self._change(account, found)

        self._resolver.do(lambda: self.directory.save_if_newer(account, jwt, time.time()), kept)

    def look_again(self, accounts: list[str]) -> None:
        """Reads the files of these accounts again, because an administrator may have replaced them."""
        if not self._answers or not accounts:
            return
        piece, rest = accounts[:LEARNED_AT_ONCE], accounts[LEARNED_AT_ONCE:]

        def loaded(jwts: dict[str, str] | Failure) -> None:
            for account, jwt in jwts.items() if isinstance(jwts, dict) else ():
                self._change(account, jwt)
            self.look_again(rest)

        self._resolver.do(lambda: self.directory.read(piece), loaded)

    def _change(self, account: str, jwt: str) -> None:
        """Tells all acceptors of an account's JWT, if it differs from the one they use and is valid."""
        if self._updates is None or self._operator is None or not self._operator.says_otherwise(account, jwt):
            return
        if self._why_not(account, jwt) is None:
            self._updates.tell(account, {"jwt": jwt})

    def _why_not(self, account: str, jwt: str) -> str | None:
        return self._operator.why_not(account, jwt) if self._operator is not None else "there is no operator"

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        ends = [next(iter(self._lookups.values()))[1]] if self._lookups else []
        if self._answers and self._client is not None:
            ends += [self._next_expiry_s] + ([] if self._is_cache else [self._next_pack_s])
        return int(max(min(ends) - time.monotonic(), 0) * 1e9) if ends else FOREVER

    def expire(self) -> None:
        now_s = time.monotonic()
        while self._lookups and next(iter(self._lookups.values()))[1] <= now_s:
            _, _, found = self._lookups.pop(next(iter(self._lookups)))
            found("")
        if not self._answers or self._client is None:
            return
        if self._next_expiry_s <= now_s:
            self._next_expiry_s = now_s + EXPIRE_S
            self._resolver.do(lambda: self.directory.expire(time.time()), lambda _: None)
        if not self._is_cache and self._next_pack_s <= now_s:
            self._next_pack_s = now_s + self._interval_s
            if self._others():
                self._resolver.do(lambda: self.directory.digest, self._ask_for_others)

    def _ask_for_others(self, digest: bytes | Failure) -> None:
        if isinstance(digest, bytes) and self._client is not None:
            self._client.publish(PACK, digest, f"{self._inbox}.pack")

    # --- requests to this server ------------------------------------------------------------------------------------

    def heard(self, subject: str, reply: str, body: bytes) -> bool:
        """Answers a message to one of the subjects above. False when the subject is another."""
        words = subject.split(".")
        if subject.startswith(f"{self._inbox}."):
            self._answered(words[-1], body)
            return True
        if words[-2] != "CLAIMS":
            return False
        if self._resolver.is_busy:
            log.warning("%s is not answered: too much is under way", subject)
            return True
        match words[-1]:
            case "LOOKUP" | "PACK" if self._is_cache:
                pass  # subscribed to when the resolver was not a cache yet
            case "UPDATE":
                self._update(words[-3] if words[-3] != "REQ" else "", body.decode(errors="replace"), reply)
            case "DELETE":
                self._delete(body.decode(errors="replace"), reply)
            case "LIST" if reply:
                self._resolver.do(self.directory.keys, partial(self._say_keys, reply))
            case "LOOKUP" if reply:
                account = words[-3]
                self._resolver.do(lambda: self.directory.load(account), partial(self._say_jwt, reply))
            case "PACK" if reply and self._packs < MAX_PACKS:
                self._packs += 1
                self._resolver.do(self.directory.keys, partial(self._begin_pack, reply, body))
        return True

    def _say(self, reply: str, content: bytes) -> None:
        if reply and self._client is not None:
            self._client.publish(reply, content)

    def _say_done(self, reply: str, message: str, account: str = "") -> None:
        data = {**({"account": account} if account else {}), "code": 200, "message": message}
        self._say(reply, orjson.dumps({"server": self._server(), "data": data}))

    def _say_error(self, reply: str, doing: str, why: object, account: str = "") -> None:
        error = {**({"account": account} if account else {}), "code": 500, "description": f"{doing} - {why}"}
        self._say(reply, orjson.dumps({"server": self._server(), "error": error}))

    def _say_keys(self, reply: str, keys: list[str] | Failure) -> None:
        if isinstance(keys, list):
            self._say(reply, orjson.dumps({"data": keys, "server": self._server()}))

    def _say_jwt(self, reply: str, jwt: str | Failure) -> None:
        """Does not answer when the disk fails: another server may have the JWT."""
        if isinstance(jwt, str):
            self._say(reply, jwt.encode())

    # --- updates ----------------------------------------------------------------------------------------------------

    def _update(self, named: str, jwt: str, reply: str) -> None:
        """`named`: the account in the request's subject; "" if it names none."""
        doing = "jwt update cache" if self._is_cache else "jwt update"
        failed = f"{doing} resulted in error"
        operator = self._operator
        if operator is None:
            return
        try:
            account = nats_jwt.decode(jwt, nats_jwt.ACCOUNT).subject
        except JwtError as error:
            self._say_error(reply, failed, error, (named if self._is_cache else "") or "n/a")
            return
        if named and account != named:
            self._say_error(reply, failed, "subject does not match jwt content", named)
        elif self._is_cache and not operator.matters(account):
            self._say_done(reply, "jwt update cache skipped", account)
        elif (why := operator.why_not(account, jwt)) is not None:
            self._say_error(reply, failed, why, account)
        else:
            saved = partial(self._saved, account, jwt, reply, failed)
            self._resolver.do(lambda: self.directory.save(account, jwt, time.time()), saved)

    def _saved(self, account: str, jwt: str, reply: str, failed: str, failure: Failure | None) -> None:
        updates, operator = self._updates, self._operator
        if failure is not None or updates is None or operator is None:
            self._say_error(reply, failed, _text(failure), account)
            return
        said = "jwt updated cache" if self._is_cache else "jwt updated"
        done = partial(self._say_done, reply, said, account)
        if not operator.matters(account):
            done()
        elif not updates.tell(account, {"jwt": jwt}, done):
            self._say_error(reply, failed, "too many are under way", account)

    # --- deletions --------------------------------------------------------------------------------------------------

    def _delete(self, jwt: str, reply: str) -> None:
        token = None
        try:
            token = nats_jwt.decode(jwt, nats_jwt.GENERIC)
            accounts = self._to_delete(token)
        except JwtError as error:
            subject = token.subject if token is not None else ""
            self._say_error(reply, f"delete accounts request by {subject} failed", error)
            return

        def delete() -> list[str]:
            """Deletes what it can and returns that; errors are added to `failures`."""
            gone: list[str] = []
            for account in accounts:
                try:
                    self.directory.delete(account)
                    gone.append(account)
                except (OSError, StoreError) as error:
                    failures.append(_text(error))
            try:
                self.directory.sync()
            except OSError as error:
                failures.append(_text(error))
            return gone

        failures: list[str] = []
        self._resolver.do(delete, partial(self._deleted, reply, failures))

    def _to_delete(self, token: nats_jwt.Token) -> list[str]:
        """The accounts that a request asks to delete. Raises JwtError when it is not allowed."""
        accounts = token.nats.get("accounts")
        if not self.directory.may_delete:
            raise JwtError("delete must be enabled in server config")
        if token.subject != token.issuer:
            raise JwtError("not self signed")
        if self._operator is None or not self._operator.trusts(token.issuer):
            raise JwtError("not trusted")
        if not isinstance(accounts, list):
            raise JwtError("malformed request")
        if not all(isinstance(one, str) and nats_nkeys.is_public(nats_nkeys.ACCOUNT, one) for one in accounts):
            raise JwtError("malformed request")
        if self._operator.system_account in accounts:
            raise JwtError("not allowed to delete system account")
        return accounts

    def _deleted(self, reply: str, failures: list[str], gone: list[str] | Failure) -> None:
        """Tells all acceptors, and answers when they have all obeyed."""
        done = list(gone) if isinstance(gone, list) else []
        updates, operator = self._updates, self._operator
        if updates is None or operator is None:
            return
        left = {account for account in done if account in operator.accounts}

        def obeyed(account: str) -> None:
            left.discard(account)
            if not left:
                say()

        def say() -> None:
            said = f"deleted {len(done)} accounts"
            if failures:
                self._say_error(reply, f"{said}, failed for {len(failures)}", "\n".join(failures))
            else:
                self._say_done(reply, said)

        for account in sorted(left):
            if not updates.tell(account, {"deleted": True}, partial(obeyed, account)):
                left.discard(account)  # too many updates are under way to wait for this one
                updates.tell(account, {"deleted": True})
        if not left:
            say()

    # --- packs ------------------------------------------------------------------------------------------------------

    def _begin_pack(self, reply: str, theirs: bytes, keys: list[str] | Failure) -> None:
        if not isinstance(keys, list):
            self._packs -= 1
        elif theirs == self.directory.digest:
            self._end_pack(reply)
        else:
            self._go_on(reply, keys, [])

    def _go_on(self, reply: str, keys: list[str], packed: list[bytes] | Failure) -> None:
        """Sends the next piece. If the disk fails the pack just stops: the asker keeps what it has received."""
        if not isinstance(packed, list):
            self._packs -= 1
            return
        for one in packed:
            self._say(reply, one)
        if not keys:
            self._end_pack(reply)
            return
        piece, rest = keys[:PACKED_AT_ONCE], keys[PACKED_AT_ONCE:]
        self._resolver.do(lambda: self.directory.pack(piece, time.time()), partial(self._go_on, reply, rest))

    def _end_pack(self, reply: str) -> None:
        self._packs -= 1
        self._say(reply, b"")


def _text(failure: object) -> str:
    return (failure.strerror or str(failure)) if isinstance(failure, OSError) else str(failure)
