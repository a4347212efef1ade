"""What becomes of a connection whose output has not all left before the write deadline, as in nats-server's
`write_timeout`: it is closed, or may go on if some of it has left."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.option_kinds import Choice

DEFAULT: Final = "default"
CHOICES: Final = (DEFAULT, "close", "retry")


def option(who: str) -> Choice:
    return Choice(DEFAULT, CHOICES, f"{who} that has taken only some in time goes on (retry), or is cut off (close)")


def retries(setting: str, *, is_client: bool) -> bool:
    """By default clients are closed, and servers go on."""
    return setting == "retry" or (setting == DEFAULT and not is_client)


def shown(setting: str) -> dict[str, str]:
    """The key of /varz, which leaves the default out."""
    return {} if setting == DEFAULT else {"write_timeout": setting}
