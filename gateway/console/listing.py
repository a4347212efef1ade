"""The console's list of topics: search, order, one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.gateway.console.figures import Figures, Row, Sample, activity, aside
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.http_answers import HttpError
from mq_shards.gateway.http_handling import number

MAX_PAGE: Final = 500
MAX_SEARCH: Final = 200
MAX_LISTS: Final = 16  # that are kept of a sample

ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "activity": activity,
    "name": lambda row: row.name,
    "in": lambda row: row.rate_in,
    "delivered": lambda row: row.rate_delivered,
    "out": lambda row: row.rate_out,
    "backlog": lambda row: max(row.backlog, row.jobs),
    "in_flight": lambda row: row.in_flight,
    "consumers": lambda row: row.consumers,
    "published": lambda row: row.published,
}
SHOWN: Final[Mapping[str, Callable[[Row], bool]]] = {
    "all": lambda row: True,
    "channels": lambda row: row.channels > 0,
    "tubes": lambda row: row.jobs > 0,
    "backlog": lambda row: max(row.backlog, row.jobs) > 0,
    "paused": lambda row: row.paused,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    search: str
    order: str
    rising: bool
    show: str
    begin: int
    limit: int

    @staticmethod
    def of(fields: Mapping[str, str]) -> Wanted:
        """Reads the fields of a query. Raises HttpError."""
        order, show = fields.get("order", "activity"), fields.get("show", "all")
        if order not in ORDERS:
            raise HttpError(400, f"order is one of {', '.join(ORDERS)}")
        if show not in SHOWN:
            raise HttpError(400, f"show is one of {', '.join(SHOWN)}")
        search = fields.get("search", "")
        if len(search) > MAX_SEARCH:
            raise HttpError(400, f"search has at most {MAX_SEARCH} characters")
        rising = fields.get("rising", "1" if order == "name" else "0") == "1"
        limit = min(number(fields, "limit", 50), MAX_PAGE)
        return Wanted(search.lower(), order, rising, show, number(fields, "from", 0), limit)


class Listing:
    """Makes lists. A sample keeps those that were made of it, since many browser pages ask the same."""

    def __init__(self, figures: Figures, waits: Waits) -> None:
        self._figures = figures
        self._waits = waits

    async def page(self, sample: Sample, wanted: Wanted) -> dict[str, Any]:
        rows = await aside(len(sample.rows), self._rows, sample, wanted)
        page = rows[wanted.begin : wanted.begin + wanted.limit]
        oldest = await self._waits.of([row.waiting for row in page])
        return {"topics": len(sample.rows), "found": len(rows), "from": wanted.begin, "silent": sample.silent,
                "rows": [self._json(row, age_s) for row, age_s in zip(page, oldest, strict=True)]}  # fmt: skip

    def _rows(self, sample: Sample, wanted: Wanted) -> list[Row]:
        if len(sample.lists) > MAX_LISTS:
            sample.lists.clear()
        key = wanted.search, wanted.order, wanted.rising, wanted.show
        rows = sample.lists.get(key)
        if rows is None:
            shows = SHOWN[wanted.show]
            rows = [row for row in sample.rows.values() if wanted.search in row.name.lower() and shows(row)]
            rows.sort(key=lambda row: row.name)
            rows.sort(key=ORDERS[wanted.order], reverse=not wanted.rising)
            sample.lists[key] = rows
        return rows

    def _json(self, row: Row, oldest_s: float | None) -> dict[str, Any]:
        published, backlog = self._figures.history(row.name)
        return {
            "name": row.name,
            "shard": row.shard,
            "published": row.published,
            "bytes": row.published_bytes,
            "backlog": row.backlog,
            "jobs": row.jobs,
            "in_flight": row.in_flight,
            "deferred": row.deferred,
            "channels": row.channels,
            "consumers": row.consumers,
            "paused": row.paused,
            "oldest_s": None if oldest_s is None else round(oldest_s, 3),
            "in": round(row.rate_in, 1),
            "delivered": round(row.rate_delivered, 1),
            "out": round(row.rate_out, 1),
            "history": {"in": published, "backlog": backlog},
        }
