"""Checks schemas for the control side: small ones at once, large ones in a thread, one after another.

The library takes a second for some hundred kilobytes. The bytes that wait for the thread are limited: clients beyond
the limit are told to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from mq_shards.gateway.pulsar import schemas
from mq_shards.gateway.pulsar.catalog import Schema
from mq_shards.gateway.pulsar.refusals import unavailable

QUICK_BYTES: Final = 4096  # of schemas, in stored form: they take a millisecond or two
MAX_WAITING_BYTES: Final = 16 << 20

T = TypeVar("T")


class SchemaChecks:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "schemas")
        self._waiting_bytes = 0

    def close(self) -> None:
        """Cancels waiting checks. Does not wait for the one that runs."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def defaults(self, new: Schema, live: Sequence[Schema]) -> None:
        """Raises WrongDefaultError, IncompatibleError: see check_defaults."""
        await self._look([new, *live], lambda: schemas.check_defaults(new, live))

    async def version(self, wanted: Schema, live: Sequence[Schema]) -> int:
        """The version that equals `wanted`; -1: there is none."""
        for found in reversed(live):
            if found.type == wanted.type and found.data == wanted.data:
                return found.version
        compared = schemas.worth_comparing(wanted, live)
        return await self._look([wanted, *compared], lambda: schemas.version_of(wanted, compared))

    async def check(self, new: Schema, live: Sequence[Schema], strategy: str) -> None:
        """Checks that a schema is valid and may follow `live`. Raises InvalidSchemaError, IncompatibleError,
        WrongDefaultError."""
        against = schemas.followed(live, strategy)

        def check() -> None:
            schemas.check(new)
            schemas.check_follows(new, against, strategy)

        await self._look([new, *against], check)

    async def _look(self, at: Sequence[Schema], work: Callable[[], T]) -> T:
        if sum(len(schema.data) for schema in at) <= QUICK_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @contextmanager
    def room(self, schema: Schema) -> Iterator[None]:
        """Counts a client's schema as waiting while it waits or is checked. Raises RefusedError beyond the limit."""
        if self._waiting_bytes + len(schema.data) > MAX_WAITING_BYTES:
            raise unavailable("there are many schemas to be looked at")
        self._waiting_bytes += len(schema.data)
        try:
            yield
        finally:
            self._waiting_bytes -= len(schema.data)
