"""What the handlers of Pulsar's REST API share: the parsed request, its body, answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import orjson
from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT, TopicName
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.scalars import strings, whole

MAX_BODY_BYTES: Final = 2 << 20
JSON: Final = {"Content-Type": "application/json"}

NO_CONTENT: Final = Answer(204)


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `names` has the values in its path of the names in its route; `fields` is its query."""

    request: Request
    bodies: Bodies
    names: Mapping[str, str]
    fields: Mapping[str, str]

    async def json(self, *, needed: bool = False) -> Any:  # noqa: ANN401
        """The body, decoded; None if it is empty. `needed`: an empty one is refused, and None is a null."""
        async with self.bodies.read_whole(self.request, MAX_BODY_BYTES) as body:
            if not body.strip():
                if needed:
                    raise _no_body()
                return None
            try:
                return orjson.loads(body)
            except orjson.JSONDecodeError as error:
                raise RefusedError(400, "MetadataError", f"the body is no JSON: {error}") from None

    async def object(self) -> dict[str, Any]:
        """The body, which is an object; an empty body gives an empty one."""
        found = await self.json()
        return {} if found is None else object_of(found)

    async def texts(self) -> dict[str, str]:
        return strings(await self.json())

    async def integer(self) -> int:
        return whole(await self.json(needed=True), "the body")

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.fields.get(name)
        return default if found is None else found.lower() == "true"

    def topic(self, control: Control) -> TopicName:
        names = self.names
        if names["domain"] not in (PERSISTENT, NON_PERSISTENT):
            raise RefusedError(404, "InvalidTopicName", "HTTP 404 Not Found")
        return control.name(f"{names['domain']}://{names['tenant']}/{names['namespace']}/{names['topic']}")

    def values(self, name: str) -> list[str]:
        """All values of a name in the query."""
        return [value for one, value in parse_qsl(self.request.target.partition("?")[2]) if one == name]

    @property
    def namespace(self) -> str:
        return f"{self.names['tenant']}/{self.names['namespace']}"

    def number(self, name: str) -> int:
        """A whole number in the path."""
        return _whole(self.names[name])

    def asked_number(self, name: str, default: int) -> int:
        """A whole number in the query."""
        text = self.fields.get(name)
        return default if text is None else _whole(text)


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise RefusedError(404, "MetadataError", "HTTP 404 Not Found")
    return int(text)


def required(given: Any) -> Any:  # noqa: ANN401
    """Refuses an empty body, and null."""
    if given is None:
        raise _no_body()
    return given


def _no_body() -> RefusedError:
    return RefusedError(400, "MetadataError", "there is no body")


def object_of(given: object) -> dict[str, Any]:
    """A body, or part of one, that is an object. Raises RefusedError."""
    if not isinstance(given, dict):
        raise RefusedError(400, "MetadataError", "the body is not an object")
    return given


Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]
Routes: TypeAlias = dict[str, dict[str, Handler]]


def json_of(data: Any, status: int = 200) -> Answer:  # noqa: ANN401
    """A JSON answer; None, which stands for a policy that is not set, gives an empty body."""
    return Answer(status, b"" if data is None else orjson.dumps(data), JSON)


def text_of(text: str) -> Answer:
    return Answer(200, text.encode(), {"Content-Type": "text/plain"})
