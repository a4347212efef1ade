"""Staged messages and writers over HTTP."""

from __future__ import annotations

import errno
import hashlib
from dataclasses import asdict, replace
from functools import partial, wraps
from typing import Any, Final

import orjson
from mq_shards.acceptor.access.rights import PUBLISH
from mq_shards.gateway.access import check_owner, forbidden_because, may, owner_of
from mq_shards.gateway.broker import DrainingError
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_handling import MAX_BODY_BYTES, Handler, number
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.pipeline.decisions import FAILED, PUBLISHED, DamagedError, WriterNameError
from mq_shards.gateway.pipeline.message_sections import SectionsError
from mq_shards.gateway.pipeline.staging import (
    MAX_FILES,
    BadNameError,
    ConflictError,
    NoRoomError,
    NotStagedError,
    Staging,
)
from mq_shards.gateway.pipeline.writers import Batch, NotOwnerError, Shown, TooManyWritersError, UnderWayError, Writers
from mq_shards.shards.readers import MAX_SEQ

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STAGED_AT_ONCE: Final = 1000
_STATUS: Final = {PUBLISHED: 200, FAILED: 409}  # any other state, of a batch under way: 202
_SAYS: Final = 'a writer says {"batch": number, "staged": [{"name": "...", "bytes": number}, ...]}'


class HttpWriters:
    def __init__(self, staging: Staging, writers: Writers, bodies: Bodies) -> None:
        self._staging = staging
        self._writers = writers
        self._bodies = bodies
        self.routes: Final[dict[str, dict[str, Handler]]] = {
            "/v1/staged": {"GET": self._staged},
            "/v1/staged/": {"POST": _refusing(self._stage), "DELETE": _refusing(self._drop)},
            "/v1/writers": {"GET": self._list},
            "/v1/writers/": {
                "GET": _refusing(self._get), "PUT": _refusing(self._put), "DELETE": _refusing(self._delete)
            },
        }  # fmt: skip

    async def _stage(self, request: Request, fields: dict[str, str]) -> Answer:
        at = number(fields, "at")
        name = _staged_name(request, fields["name"])
        async with self._bodies.read_whole(request, MAX_BODY_BYTES) as body:
            try:
                size = await self._staging.put(name, at, body)
            except SectionsError as error:
                raise HttpError(400, str(error)) from None
        return json_answer({"bytes": size})

    async def _staged(self, request: Request, fields: dict[str, str]) -> Answer:
        """Lists up to STAGED_AT_ONCE staged files, of this user if there are users, whose names come after `after`."""
        prefix = _staged_name(request, "")
        found = self._staging.shown(prefix, prefix + fields.get("after", ""), STAGED_AT_ONCE)
        staged = [
            {
                "name": file.name.removeprefix(prefix), "bytes": file.size,
                "touched_ns": int(file.touched_s * 1e9), "publishing": file.is_claimed,
            }
            for file in found
        ]  # fmt: skip
        return json_answer({"staged": staged, "more": len(staged) == STAGED_AT_ONCE})

    async def _drop(self, request: Request, fields: dict[str, str]) -> Answer:
        if not await self._staging.drop(_staged_name(request, fields["name"])):
            raise HttpError(404, f"{fields['name']} is not staged")
        return json_answer({})

    async def _list(self, request: Request, fields: dict[str, str]) -> Answer:
        return json_answer({"writers": [_shown_json(shown) for shown in self._writers.list()]})

    async def _get(self, request: Request, fields: dict[str, str]) -> Answer:
        shown = self._writers.get(fields["name"])
        if shown is None:
            raise HttpError(404, f"there is no writer {fields['name']}")
        return json_answer(_shown_json(shown))

    async def _put(self, request: Request, fields: dict[str, str]) -> Answer:
        async with self._bodies.read_whole(request, MAX_BODY_BYTES) as body:
            batch = _decode(fields["name"], body)
        if request.is_guarded:
            staged = [(_staged_name(request, name), size) for name, size in batch.staged]
            batch = replace(batch, staged=staged, owner=owner_of(request), may=partial(may, request, PUBLISH))
        try:
            shown = await self._writers.publish(batch)
        except SectionsError as error:
            raise HttpError(409, str(error)) from None
        return json_answer(_shown_json(shown), _STATUS.get(shown.state, 202))

    async def _delete(self, request: Request, fields: dict[str, str]) -> Answer:
        check_owner(request, self._writers.owner_of(fields["name"]), f"writer {fields['name']}")
        if not await self._writers.delete(fields["name"]):
            raise HttpError(404, f"there is no writer {fields['name']}")
        return json_answer({})


def _staged_name(request: Request, name: str) -> str:
    """The name under which a file is stored. With users it includes a hash of the user: no other user can name it."""
    owner = owner_of(request)
    return f"u{hashlib.sha256(owner.encode()).hexdigest()[:16]}:{name}" if owner else name


def _refusing(handler: Handler) -> Handler:
    """Wraps a handler so that errors become HTTP statuses."""

    @wraps(handler)
    async def handle(request: Request, fields: dict[str, str]) -> Answer | None:
        try:
            return await handler(request, fields)
        except ConflictError as error:
            raise HttpError(409, str(error), more={"bytes": error.size}) from None
        except (BadNameError, WriterNameError) as error:
            raise HttpError(400, str(error)) from None
        except NotStagedError as error:
            raise HttpError(404, str(error)) from None
        except NotOwnerError as error:
            raise forbidden_because(request, str(error)) from None
        except UnderWayError as error:
            raise HttpError(409, str(error)) from None
        except NoRoomError as error:
            raise HttpError(507, str(error)) from None
        except DamagedError as error:
            raise HttpError(500, str(error)) from None
        except TooManyWritersError as error:
            raise HttpError(503, str(error)) from None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise HttpError(507, f"the disk takes no more: {error.strerror}") from None
        except DrainingError:
            raise HttpError(503, "the broker takes no new messages until it is started again") from None

    return handle


def _decode(writer: str, body: bytes) -> Batch:
    try:
        found = orjson.loads(body)  # orjson limits how deep it is nested
    except ValueError:
        raise HttpError(400, "the body is not JSON") from None
    if not isinstance(found, dict) or not found.keys() <= {"batch", "staged", "once"}:
        raise HttpError(400, _SAYS)
    batch, staged, once = found.get("batch"), found.get("staged"), found.get("once", False)
    if not isinstance(batch, int) or not _is_number(batch):
        raise HttpError(400, _SAYS)
    if not isinstance(staged, list) or not isinstance(once, bool):
        raise HttpError(400, _SAYS)
    if len(staged) > MAX_FILES:
        raise HttpError(400, f"a batch names {MAX_FILES} files at most")
    files: dict[str, int] = {}
    for one in staged:
        if not isinstance(one, dict) or one.keys() != {"name", "bytes"}:
            raise HttpError(400, _SAYS)
        if not isinstance(one["name"], str) or not _is_number(one["bytes"]):
            raise HttpError(400, _SAYS)
        if one["name"] in files:
            raise HttpError(400, f"{one['name']:.200} is named twice")
        files[one["name"]] = one["bytes"]
    return Batch(writer, batch, list(files.items()), once)


def _is_number(found: object) -> bool:
    return type(found) is int and 0 <= found <= MAX_SEQ


def _shown_json(shown: Shown) -> dict[str, Any]:
    return {name: value for name, value in asdict(shown).items() if name not in ("error", "owner") or value}
