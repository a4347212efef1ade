"""/metrics of topics and channels: which are shown, their figures, and how long their oldest message has waited.

Clients can make any number of names, so at most `http.metrics-topics` of them are shown: those with the most messages,
and of equals those that have channels or jobs. Workers are asked for the oldest messages of these only, and for a
second at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from mq_shards.gateway.ages import Name, look_up, waits_in_channel, waits_in_topic
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.names import shown

if TYPE_CHECKING:
    from prometheus_client import Metric

AGES_S: Final = 1.0  # names not asked for by then have no age in this scrape

_TOPIC: Final[tuple[tuple[Callable[[Topic], int], bool, str, str], ...]] = (
    (lambda t: t.messages - t.read_back, True, "topic_published", "Messages that were published to the topic."),
    (lambda t: t.message_bytes - t.read_back_bytes, True, "topic_published_bytes", "Bytes of those messages."),
    (lambda t: t.depth, False, "topic_depth", "Messages that wait for a channel, for the end of a pause, or are jobs."),
    (lambda t: t.jobs, False, "topic_jobs", "Jobs of the topic's tube, in all states."),
    (lambda t: t.reserves, True, "topic_jobs_reserved", "Jobs of the tube that clients have been given."),
    (lambda t: t.deletes, True, "topic_jobs_deleted", "Jobs of the tube that were deleted: they are done."),
    (lambda t: t.releases, True, "topic_jobs_released", "Jobs of the tube that clients gave back."),
    (lambda t: t.timeouts, True, "topic_jobs_timed_out", "Jobs of the tube whose time to run was over."),
    (lambda t: t.reserved, False, "topic_jobs_in_flight", "Jobs of the tube that clients have now."),
    (lambda t: t.delayed, False, "topic_jobs_delayed", "Jobs of the tube that are to be given out later."),
    (lambda t: t.buried, False, "topic_jobs_buried", "Jobs of the tube that are buried."),
    (lambda t: t.paused, False, "topic_paused", "1: nothing of the topic is handed out."),
)
_CHANNEL: Final[tuple[tuple[Callable[[Channel], int], bool, str, str], ...]] = (
    (lambda c: c.depth, False, "channel_depth", "Messages that wait for a consumer of the channel."),
    (lambda c: c.in_flight, False, "channel_in_flight", "Messages that consumers have and have not finished."),
    (lambda c: c.deferred, False, "channel_deferred", "Messages that are to be delivered later."),
    (lambda c: max(0, c.messages - c.read_back), True, "channel_messages", "Messages that came to the channel."),
    (lambda c: c.delivered, True, "channel_delivered", "Deliveries to consumers, also of what is delivered again."),
    (lambda c: c.finished, True, "channel_finished", "Messages that the channel is done with."),
    (lambda c: c.requeues, True, "channel_requeued", "Messages that consumers gave back."),
    (lambda c: c.timeouts, True, "channel_timed_out", "Messages whose time to be finished was over."),
    (lambda c: c.consumer_count, False, "channel_consumers", "Consumers of the channel."),
    (lambda c: c.paused, False, "channel_paused", "1: nothing of the channel is handed out."),
)
_TOPIC_OLDEST: Final = "Age of what waits longest for a first channel, or of the tube's next job; 0: none."
_CHANNEL_OLDEST: Final = "Age of the oldest message that the channel has neither finished nor deferred; 0: none."


@dataclass(slots=True)
class Shown:
    """The topics and channels that are shown, sorted by name."""

    topics: Sequence[Topic]
    channels: Sequence[tuple[str, Channel]]
    hidden_topics: int
    hidden_channels: int
    ages_s: dict[Name, float] = field(default_factory=dict)


def _is_in_use(topic: Topic) -> bool:
    return bool(topic.channels or topic.jobs or topic.reserves)  # a tube without jobs now may have had some before


def order_of(topic: Topic) -> tuple[int, bool, str]:
    """The greater, the sooner a topic is shown."""
    return topic.messages, _is_in_use(topic), topic.name


def choose(topics: Sequence[Topic], most: int) -> Shown:
    chosen = nlargest(most, topics, key=order_of)
    chosen.sort(key=lambda topic: topic.name)
    # A topic may have thousands of channels, so channels have the same limit: those with the greatest depth.
    channels = [(topic.name, channel) for topic in chosen for channel in topic.channels]
    hidden = max(0, len(channels) - most)
    if hidden:
        channels = nlargest(most, channels, key=lambda one: (one[1].depth, one[1].messages))
        channels.sort(key=lambda one: (one[0], one[1].name))
    return Shown(chosen, channels, len(topics) - len(chosen), hidden)


async def look_at_ages(broker: Broker, of: Shown, begin: dict[int, Name]) -> None:
    """Looks up the ages. `begin`: as the last scrape left it, see look_up()."""
    every: dict[Name, bool] = {(topic.name,): waits_in_topic(topic) for topic in of.topics}
    every.update({(topic, channel.name): waits_in_channel(channel) for topic, channel in of.channels})
    of.ages_s = {name: 0.0 for name, waits in every.items() if not waits}
    of.ages_s |= await look_up(broker, [name for name, waits in every.items() if waits], begin, AGES_S)


Family = Callable[[bool, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]], "Metric"]


def families(of: Shown, family: Family) -> Iterator[Metric]:
    yield family(False, "topics_not_shown", "Topics and tubes that have no figures of their own here.", (),
                 [((), float(of.hidden_topics))])  # fmt: skip
    for figure, rises, name, help_text in _TOPIC:
        yield family(rises, name, help_text, ("topic",), [((shown(t.name),), float(figure(t))) for t in of.topics])
    ages = [(tuple(map(shown, names)), age_s) for names, age_s in of.ages_s.items()]
    of_topics, of_channels = ([one for one in ages if len(one[0]) == labels] for labels in (1, 2))
    yield family(False, "topic_oldest_seconds", _TOPIC_OLDEST, ("topic",), of_topics)
    yield family(False, "channels_not_shown", "Channels of those topics that have no figures of their own here.", (),
                 [((), float(of.hidden_channels))])  # fmt: skip
    for figure_of, rises, name, help_text in _CHANNEL:
        rows = [((shown(topic), shown(channel.name)), float(figure_of(channel))) for topic, channel in of.channels]
        yield family(rises, name, help_text, ("topic", "channel"), rows)
    yield family(False, "channel_oldest_seconds", _CHANNEL_OLDEST, ("topic", "channel"), of_channels)
