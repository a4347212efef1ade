"""REST: the bundles of a namespace themselves: which there are, splitting one, deleting one. What is done to all topics
of a bundle is in http_all.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles, scalars
from mq_shards.gateway.pulsar.bundles import MAX_BUNDLES, Boundaries
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of
from mq_shards.gateway.turns import in_pieces, sorted_by_name

NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
NO_NAMESPACE: Final = "Namespace does not exist"
IN_HALVES: Final = "range_equally_divide"
BY_TOPICS: Final = "topic_count_equally_divide"
AT: Final = "specified_positions_divide"
BY_LOAD: Final = "flow_or_qps_equally_divide"
ALGORITHMS: Final = (IN_HALVES, BY_TOPICS, AT, BY_LOAD)
# Instead of a range: the bundle with the most topics, or the one with the most traffic.
LARGEST: Final = "LARGEST"
HOT: Final = "HOT"


class HttpBundles:
    def __init__(self, control: Control) -> None:
        self._control = control
        self.routes: Routes = {
            f"{NAMESPACE}/bundles": {"GET": self._list},
            f"{NAMESPACE}/{{bundle}}": {"DELETE": self._delete},
            f"{NAMESPACE}/{{bundle}}/split": {"PUT": self._split},
            f"{NAMESPACE}/{{bundle}}/topicHashPositions": {"GET": self._positions},
        }

    def _boundaries(self, call: Call, reason: str = NO_NAMESPACE) -> Boundaries:
        return bundles.boundaries_of(self._control.namespace(call.namespace, reason, made=True).policies)

    async def _topics(self, call: Call, low: int, high: int) -> list[str]:
        return await bundles.in_range(low, high, await self._control.topics_of_mode(call.namespace, "ALL"))

    async def _list(self, call: Call) -> Answer:
        found = self._boundaries(call)
        await self._control.store.settled()
        return json_of(bundles.shown(found))

    async def _delete(self, call: Call) -> Answer:
        """A bundle that is deleted is there again when a topic of it is used, so it only has to be empty. With `force`
        its clients are sent away, and its topics stay: so does a real broker."""
        low, high = bundles.checked(call.namespace, self._boundaries(call), call.names["bundle"])
        topics = await self._topics(call, low, high)
        if topics and not call.flag("force"):
            raise conflict("Cannot delete non empty bundle")
        await self._control.clients.close(topics)
        return NO_CONTENT

    async def _positions(self, call: Call) -> Answer:
        low, high = bundles.checked(call.namespace, self._boundaries(call), call.names["bundle"])
        wanted = set(call.values("topics"))
        topics = await self._topics(call, low, high)
        positions = {
            topic: bundles.hash_of(topic)
            async for piece in in_pieces(topics)
            for topic in piece
            if not wanted or topic in wanted or topic.rpartition("-partition-")[0] in wanted
        }
        found = {"namespace": call.namespace, "bundle": bundles.range_of(low, high), "topicHashPositions": positions}
        return json_of(found)

    # --- splitting --------------------------------------------------------------------------------------------------

    async def _split(self, call: Call) -> Answer:
        places = await call.json()
        boundaries = self._boundaries(call, "Namespace not found")
        algorithm = call.fields.get("splitAlgorithmName") or IN_HALVES
        if algorithm not in ALGORITHMS:
            known = f"supported algorithms are [{', '.join(ALGORITHMS)}]"
            raise precondition(f"Unsupported namespace bundle split algorithm, {known}")
        if algorithm == AT and not places:
            raise precondition(f"With {AT} split algorithm, splitBoundaries must not be empty")
        if algorithm == BY_LOAD:
            raise RefusedError(501, "NotAllowedError", "this broker is one, and weighs no bundles")
        low, high = await self._chosen(call, boundaries)
        topics = await self._topics(call, low, high)
        new = [one for one in await self._between(algorithm, low, high, topics, places) if low < one < high]
        # As they are now: while topics were listed another request may have split a bundle.
        policies = self._control.namespace(call.namespace).policies
        bundles.checked(call.namespace, bundles.boundaries_of(policies), bundles.range_of(low, high))
        found = tuple(sorted({*bundles.boundaries_of(policies), *new}))
        if len(found) - 1 > MAX_BUNDLES:
            raise too_many(f"a namespace has {MAX_BUNDLES} bundles at most")
        await self._control.set_policies(call.namespace, {**policies, bundles.KEY: bundles.shown(found)})
        if call.flag("unload"):
            await self._control.clients.close(topics)
        return NO_CONTENT

    async def _chosen(self, call: Call, boundaries: Boundaries) -> tuple[int, int]:
        named = call.names["bundle"]
        if named not in (LARGEST, HOT):
            return bundles.checked(call.namespace, boundaries, named)
        counts = dict.fromkeys(bundles.names_of(boundaries), 0)
        if named == LARGEST:
            async for piece in in_pieces(await self._control.topics_of_mode(call.namespace, "ALL")):
                for topic in piece:
                    counts[bundles.bundle_of(boundaries, topic)] += 1
        largest = max(counts, key=counts.__getitem__)
        if not counts[largest]:
            raise not_found(f"Bundle range {named} not found")
        return bundles.checked(call.namespace, boundaries, largest)

    @staticmethod
    async def _between(algorithm: str, low: int, high: int, topics: Sequence[str], places: object) -> list[int]:
        """The new boundaries; those that are not within the bundle count for nothing."""
        if algorithm == IN_HALVES:
            return [low + (high - low) // 2]
        if len(topics) < 2:
            return []
        if algorithm == AT:
            if not isinstance(places, list):
                raise RefusedError(400, "MetadataError", "the body is not a list of positions")
            return [scalars.whole(one, "a position") for one in places]
        by_hash = await sorted_by_name(topics, lambda topic: f"{bundles.hash_of(topic):08x}")
        before, behind = (bundles.hash_of(by_hash[len(by_hash) // 2 + at]) for at in (-1, 0))
        return [before + (behind - before) // 2]
