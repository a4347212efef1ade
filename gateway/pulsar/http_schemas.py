"""REST: schemas."""

from __future__ import annotations

import base64
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT, TopicName, has_cluster
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import Json, Schema
from mq_shards.gateway.pulsar.control import NAMESPACE_NOT_FOUND, NO_NAMESPACE, Control
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found
from mq_shards.gateway.pulsar.requests import JSON, Call, Routes, json_of
from mq_shards.gateway.pulsar.schemas import TYPES, key_and_value, raw_data
from mq_shards.gateway.turns import Turns

# The most bytes of schemas in one answer, in stored form (base64).
MAX_SHOWN_BYTES: Final = 16 << 20


class HttpSchemas:
    def __init__(self, control: Control) -> None:
        self._control = control
        topic = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
        self.routes: Routes = {
            f"{topic}/schema": {"GET": self._get, "POST": self._put, "DELETE": self._delete},
            f"{topic}/schema/{{version}}": {"GET": self._get_version},
            f"{topic}/schemas": {"GET": self._all},
            f"{topic}/metadata": {"GET": self._metadata},
            f"{topic}/version": {"POST": self._version},
            f"{topic}/compatibility": {"POST": self._compatibility},
        }

    def _name(self, call: Call, *, made: bool = False) -> TopicName:
        """The path says no domain: it is the topic that is not persistent if only that has a schema. `made`: somebody
        must have made its namespace."""
        names = call.names
        name, other = (
            self._control.name(f"{domain}://{names['tenant']}/{names['namespace']}/{names['topic']}")
            for domain in (PERSISTENT, NON_PERSISTENT)
        )
        self._control.namespace(name.namespace, NO_NAMESPACE if made else NAMESPACE_NOT_FOUND, made=made)
        has_schema = self._control.store.catalog.schema
        return other if has_schema(str(name.base)) is None and has_schema(str(other.base)) is not None else name

    async def _get(self, call: Call) -> Answer:
        found = self._control.store.catalog.schema(str(self._name(call).base))
        await self._control.store.settled()
        if found is None:
            raise not_found("Schema not found")
        return json_of(_shown(found))

    async def _get_version(self, call: Call) -> Answer:
        found = self._control.store.catalog.schema_version(str(self._name(call).base), call.number("version"))
        await self._control.store.settled()
        if found is None:
            raise not_found("Schema not found")
        return json_of(_shown(found))

    async def _all(self, call: Call) -> Answer:
        live = self._control.store.catalog.live_schemas(str(self._name(call).base))
        if sum(len(schema.data) for schema in live) > MAX_SHOWN_BYTES:
            raise RefusedError(
                413, "NotAllowedError", "these schemas are too much for one answer: ask for each version"
            )
        await self._control.store.settled()
        shown, turns = [], Turns()
        for schema in live:
            shown.append(orjson.dumps(_shown(schema)))
            await turns.pause()
        return Answer(200, b'{"getSchemaResponses":[' + b",".join(shown) + b"]}", JSON)

    async def _metadata(self, call: Call) -> Answer:
        """Which versions there are. They are in no ledger."""
        live = self._control.store.catalog.live_schemas(str(self._name(call).base))
        await self._control.store.settled()
        index = [{"ledgerId": -1, "entryId": -1, "version": schema.version} for schema in live]
        return json_of({"info": index[-1], "index": index}) if index else Answer(200)

    async def _put(self, call: Call) -> Answer:
        new = await _given(call)
        name = self._name(call, made=has_cluster(call.namespace))
        return json_of({"version": {"version": await self._control.put_schema(name, new, by_admin=True)}})

    async def _version(self, call: Call) -> Answer:
        return json_of({"version": await self._control.schema_version(self._name(call), await _given(call))})

    async def _compatibility(self, call: Call) -> Answer:
        """A schema that is not compatible gives status 500, as with a real broker, with a reason of one line."""
        name, new = self._name(call, made=has_cluster(call.namespace)), await _given(call)
        strategy = self._control.strategy(name)
        try:
            await self._control.check_schema(name, new)
        except RefusedError as error:
            raise RefusedError(500 if error.status == 409 else error.status, error.error, error.reason) from None
        return json_of({"compatibility": True, "schemaCompatibilityStrategy": strategy}, 202)

    async def _delete(self, call: Call) -> Answer:
        name = self._name(call)
        return json_of({"version": await self._control.delete_schema(name, force=call.flag("force"))})


async def _given(call: Call) -> Schema:
    given = await call.object()
    kind, text, properties = given.get("type"), given.get("schema", ""), given.get("properties") or {}
    if isinstance(kind, dict | list):
        raise RefusedError(400, "MetadataError", "the type of a schema is a name")
    if kind not in TYPES:
        raise RefusedError(422, "IncompatibleSchema", f"there is no schema type {kind}")
    if not isinstance(text, str) or not isinstance(properties, dict):
        raise RefusedError(400, "MetadataError", "a schema has a text and properties")
    if not all(isinstance(value, str) for value in properties.values()):
        raise RefusedError(400, "MetadataError", "properties are strings")
    data = _key_value_data(text) if kind == "KEY_VALUE" else text.encode()
    return Schema(-1, str(kind), base64.b64encode(data).decode(), properties, 0)


def _key_value_data(text: str) -> bytes:
    """Joins the two schemas, which REST has in one object: stored they follow each other, each after its length."""
    try:
        found: Any = orjson.loads(text)
        parts = [_part(found["key"]), _part(found["value"])]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RefusedError(422, "IncompatibleSchema", "Invalid schema definition data for KEY_VALUE schema") from None
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _part(found: Any) -> bytes:  # noqa: ANN401
    return found.encode() if isinstance(found, str) else orjson.dumps(found)


def _shown(schema: Schema) -> Json:
    if schema.type == "KEY_VALUE":
        key, value = key_and_value(schema)
        data = orjson.dumps({"key": _loaded(key), "value": _loaded(value)}).decode()
    else:
        data = raw_data(schema).decode(errors="replace")
    return {
        "version": schema.version, "type": schema.type, "timestamp": schema.timestamp_ms, "data": data,
        "properties": schema.properties,
    }  # fmt: skip


def _loaded(schema: Schema) -> Any:  # noqa: ANN401
    raw = raw_data(schema)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw.decode(errors="replace")
