"""JetStream of other servers in the cluster. This server has none, but its clients can use that of the others, like the
clients of a nats-server without JetStream.

The API is a service that the system account exports; requests tell it who asks. An account imports it if the file or
its JWT enables JetStream; if there are no other accounts, the global account does. Requests to a stream or consumer
itself (for the next message, or one by its number) pass within the account, like any message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT

API: Final = "$JS.API."
CONSUMERS: Final = (
    "CREATE", "DURABLE", "NAMES", "LIST", "INFO", "DELETE", "PAUSE", "UNPIN", "RESET", "LEADER", "PEER",
)  # fmt: skip
SERVICES: Final = (
    "$JS.API.INFO",
    *(f"{API}{name}.>" for name in ("ACCOUNT", "META", "SERVER", "STREAM")),
    *(f"{API}CONSUMER.{name}.>" for name in CONSUMERS),
)

Account = Mapping[str, Any]


def with_api(accounts: Sequence[Account], system_account: str) -> list[Account]:
    """Returns the accounts, with the API's export and imports added."""
    known = {account["name"]: account for account in accounts}
    is_plain = known.keys() <= {system_account, GLOBAL_ACCOUNT}
    takers = {name for name, account in known.items() if account.get("jetstream")}
    takers |= {GLOBAL_ACCOUNT} if is_plain else set()
    for name in takers - {system_account}:
        account = known.setdefault(name, {"name": name})
        imports = account.get("imports", ())
        if not any(one["kind"] == "service" and one["to"].startswith(API) for one in imports):
            known[name] = {**account, "imports": [*imports, *_imports(system_account)]}
    system = known.setdefault(system_account, {"name": system_account})
    export = {"kind": "service", "subject": f"{API}>"}
    known[system_account] = {**system, "exports": [*system.get("exports", ()), export]}
    return list(known.values())


def _imports(system_account: str) -> list[dict[str, Any]]:
    said = {"kind": "service", "account": system_account, "share": True}
    return [{**said, "subject": subject, "to": subject} for subject in SERVICES]
