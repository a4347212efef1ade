"""/metrics: what Prometheus is told is true, whole and bounded."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.beanstalk.wire import Wire as Jobs
from tests.beanstalk.wire import unique_tube
from tests.nsq import api
from tests.nsq.wire import Wire, unique_topic
from tests.pipeline.broker import Broker
from tests.servers import children, comm_of, free_port, wait_until

JOBS_PORT = free_port()
MOST_TOPICS = 5
OF_A_PROCESS = ("_cpu_seconds", "_busy_seconds", "_long_turns", "_waits", "log_records_written")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listen = f"--listen=beanstalk://127.0.0.1:{JOBS_PORT}"
    one = Broker(tmp_path_factory.mktemp("metrics"), f"--set=http.metrics-topics={MOST_TOPICS}", listen)
    one.start()
    yield one
    one.stop()


def scraped(broker: Broker, *there: str, **labels: str) -> str:
    """Once all of `there` are in it, with those labels: a scrape leaves out what it was not told in time."""
    until = time.monotonic() + 60
    while True:
        answer = api.call(broker.http_port, "GET", "/metrics")
        assert answer.status == 200
        text = answer.body.decode()
        if all(found(text, name, labels) for name in there):
            return text
        assert time.monotonic() < until, (there, labels)


def figure(text: str, name: str, **labels: str) -> float:
    values = found(text, name, labels)
    assert len(values) == 1, (name, labels, values)
    return values[0]


def found(text: str, name: str, labels: Mapping[str, str]) -> list[float]:
    return [s.value for s in _samples(text, name) if _has(s.labels, labels)]


def summed(text: str, name: str) -> float:
    """Over what several processes count."""
    return sum(s.value for s in _samples(text, name))


def _samples(text: str, name: str) -> list[Sample]:
    """To parse all of the text takes long, and some tests look again and again."""
    of_name = "".join(line for line in text.splitlines(keepends=True) if name in line)
    samples = (sample for family in text_string_to_metric_families(of_name) for sample in family.samples)
    return [sample for sample in samples if sample.name == f"mq_shards_{name}"]


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def publish(broker: Broker, topic: str, messages: int) -> None:
    for _ in range(messages):
        api.post(broker.nsq_http_port, f"/pub?topic={topic}", b"hello")


def test_figures_of_a_topic_and_its_channel_are_true(broker: Broker) -> None:
    topic = unique_topic()
    api.post(broker.nsq_http_port, f"/topic/create?topic={topic}")
    api.post(broker.nsq_http_port, f"/channel/create?topic={topic}&channel=c")
    publish(broker, topic, 9)
    text = scraped(broker, "topic_published_total", "channel_depth", topic=topic)
    assert figure(text, "topic_published_total", topic=topic) == 9
    assert summed(text, "published_total") >= 9, "of all topics, whatever published"
    assert figure(text, "topic_published_bytes_total", topic=topic) == 9 * len("hello")
    assert figure(text, "channel_depth", topic=topic, channel="c") == 9
    assert figure(text, "channel_consumers", topic=topic, channel="c") == 0
    api.post(broker.nsq_http_port, f"/channel/empty?topic={topic}&channel=c")
    api.post(broker.nsq_http_port, f"/channel/pause?topic={topic}&channel=c")
    text = scraped(broker, "channel_depth", topic=topic)
    assert figure(text, "channel_depth", topic=topic, channel="c") == 0
    assert figure(text, "channel_paused", topic=topic, channel="c") == 1
    assert figure(text, "disk_bytes", which="free") > 0


def test_a_scrape_has_a_limit_whatever_channels_a_topic_has(broker: Broker) -> None:
    topic = unique_topic()
    api.post(broker.nsq_http_port, f"/topic/create?topic={topic}")
    publish(broker, topic, 60)  # it is one of those that are shown
    for n in range(3 * MOST_TOPICS):
        api.post(broker.nsq_http_port, f"/channel/create?topic={topic}&channel=c{n}")
    publish(broker, topic, 1)
    text = scraped(broker, "channel_depth", topic=topic)
    shown = [line for line in text.splitlines() if line.startswith("mq_shards_channel_depth{")]
    assert len(shown) == MOST_TOPICS
    assert figure(text, "channels_not_shown") >= 2 * MOST_TOPICS
    # The first channel got what had waited for one, so it has the most.
    assert figure(text, "channel_depth", topic=topic, channel="c0") == 61
    api.post(broker.nsq_http_port, f"/topic/delete?topic={topic}")


def test_a_scrape_has_a_limit_whatever_strangers_name(broker: Broker) -> None:
    busy = [unique_topic() for _ in range(MOST_TOPICS)]
    for topic in busy:
        publish(broker, topic, 20)
    for _ in range(30):
        publish(broker, unique_topic(), 1)
    text = scraped(broker, "topic_published_total", topic=busy[0])
    shown = [line for line in text.splitlines() if line.startswith("mq_shards_topic_depth{")]
    assert len(shown) == MOST_TOPICS
    assert all(figure(text, "topic_published_total", topic=topic) == 20 for topic in busy)
    assert figure(text, "topics_not_shown") >= 30


def test_every_process_is_there(broker: Broker) -> None:
    text = scraped(broker)
    pids = children(broker.running.process.pid)
    for pid in pids:
        assert figure(text, "process_resident_bytes", process=comm_of(pid)) > 1 << 20
        assert 3 < figure(text, "process_open_files", process=comm_of(pid)) < figure(text, "process_max_files")
    assert figure(text, "worker_up", worker="0") == figure(text, "worker_up", worker="1") == 1


@pytest.mark.parametrize("sync", ["interval", "always"])
def test_how_long_publishes_turns_and_syncs_take(tmp_path: Path, sync: str) -> None:
    """Each publish is counted once, and buckets add up; with `always`, none is answered before a sync."""
    broker = Broker(tmp_path, f"--sync={sync}")
    broker.start()
    try:
        publish(broker, unique_topic(), 7)

        def all_counted() -> bool:
            # A turn is counted when the next begins.
            return summed(scraped(broker), "publish_seconds_count") == 7

        wait_until(all_counted, "all are counted")
        wait_until(lambda: summed(scraped(broker), "sync_seconds_count") > 0, "they were synced")
        text = scraped(broker)
        for name in ("publish", "turn", "sync"):
            samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
            for worker in ("0", "1"):
                of_worker = [one for one in samples if one.labels.get("worker") == worker]
                buckets = [one.value for one in of_worker if one.name == f"mq_shards_{name}_seconds_bucket"]
                assert buckets == sorted(buckets)
                assert buckets[-1] == figure(text, f"{name}_seconds_count", worker=worker)
            assert summed(text, f"{name}_seconds_count") > 0 < summed(text, f"{name}_seconds_sum") < 60
        if sync == "always":
            assert summed(text, "sync_seconds_count") >= 7
    finally:
        broker.stop()


def aged(broker: Broker, topic: str) -> str:
    """A scrape with the ages of both."""
    until = time.monotonic() + 60
    while True:
        text = scraped(broker, "channel_oldest_seconds", topic=topic, channel="c")
        if found(text, "topic_oldest_seconds", {"topic": topic}):
            return text
        assert time.monotonic() < until, topic


def test_how_old_what_waits_is(broker: Broker) -> None:
    """Of a channel the first that is not finished, whoever has it; of a topic what waits for a first channel."""
    topic = unique_topic()
    publish(broker, topic, 40)  # it is one of those that are shown
    oldest = "topic_oldest_seconds"
    wait_until(lambda: figure(scraped(broker, oldest, topic=topic), oldest, topic=topic) > 0.2, "it grows older")
    api.post(broker.nsq_http_port, f"/channel/create?topic={topic}&channel=c")
    text = aged(broker, topic)
    assert figure(text, "topic_oldest_seconds", topic=topic) == 0, "it is the channel's"
    first = figure(text, "channel_oldest_seconds", topic=topic, channel="c")
    assert 0.2 < first < 60
    with Wire(broker.nsq_port) as consumer:
        consumer.subscribe(topic, "c", rdy=1)
        held = consumer.message()
        text = aged(broker, topic)
        assert figure(text, "channel_in_flight", topic=topic, channel="c") == 1
        assert first < figure(text, "channel_oldest_seconds", topic=topic, channel="c") < first + 60
        assert figure(text, "channel_delivered_total", topic=topic, channel="c") == 1
        assert figure(text, "channel_finished_total", topic=topic, channel="c") == 0
        consumer.rdy(50)
        consumer.fin(held, *consumer.messages(39))

        def is_done() -> bool:
            return figure(aged(broker, topic), "channel_finished_total", topic=topic, channel="c") == 40

        wait_until(is_done, "all are finished")
    text = aged(broker, topic)
    assert figure(text, "channel_delivered_total", topic=topic, channel="c") == 40, "though who had them is gone"
    assert figure(text, "channel_oldest_seconds", topic=topic, channel="c") == 0


def test_figures_of_a_tube_are_true(broker: Broker) -> None:
    tube = unique_tube()
    with Jobs(JOBS_PORT) as jobs:
        jobs.use(tube)
        jobs.watch_only(tube)
        for delay in (0,) * 25 + (900,) * 15:
            jobs.put(b"hello", pri=1, delay=delay)
        held = [jobs.reserve()[0] for _ in range(10)]
        for command in ("delete {}", "bury {} 1", "release {} 1 0", "release {} 1 900"):
            jobs.ask(command.format(held.pop()))

        def has(**wanted: int) -> bool:
            text = scraped(broker, "topic_jobs", topic=tube)
            return {name: figure(text, f"topic_{name}", topic=tube) for name in wanted} == wanted

        then = {"jobs": 39, "jobs_delayed": 16, "jobs_buried": 1, "jobs_deleted_total": 1, "jobs_released_total": 2}
        assert has(**then, jobs_in_flight=6, jobs_reserved_total=10, jobs_timed_out_total=0)
        short = jobs.put(b"hello", pri=0, ttr=1)
        assert jobs.reserve()[0] == short
        wait_until(lambda: has(jobs_in_flight=6, jobs_timed_out_total=1), "its time is over")


def test_loops_rings_and_waits_are_there(broker: Broker) -> None:
    text = scraped(broker)
    for process in ("mq-acceptor-0", "mq-worker-0", "mq-worker-1"):
        assert figure(text, "loop_long_turns_total", process=process) >= 0
    assert 0 < figure(text, "loop_busy_seconds_total", process="mq-worker-0") < 600
    room = figure(text, "ring_room_bytes")
    for worker in ("0", "1"):
        assert figure(text, "waits_total", **{"process": f"mq-worker-{worker}", "for": "segment"}) >= 0
        for process in ("mq-acceptor-0", "mq-gateway"):
            for direction in ("to_worker", "from_worker"):
                used = figure(text, "ring_bytes", worker=worker, process=process, direction=direction)
                assert 0 <= used <= room
    # What the scrape itself asks stands in the gateway's ring while it is answered.
    assert figure(text, "ring_bytes", worker="0", process="mq-gateway", direction="to_worker") > 0


def test_no_counter_falls_but_to_nothing(tmp_path: Path) -> None:
    """What a worker that was killed has read back is not counted a second time: Prometheus would call that a rate."""
    broker = Broker(tmp_path)
    broker.start()
    try:
        topic = unique_topic()
        api.post(broker.nsq_http_port, f"/topic/create?topic={topic}")
        api.post(broker.nsq_http_port, f"/channel/create?topic={topic}&channel=c")
        publish(broker, topic, 9)
        before = counters(scraped(broker, "topic_published_total", "channel_messages_total", topic=topic))
        assert before[f"mq_shards_topic_published_total topic={topic}"] == 9
        for pid in children(broker.running.process.pid):
            if "worker" in comm_of(pid):
                os.kill(pid, signal.SIGKILL)
        text = scraped(broker, "topic_published_total", "channel_depth", topic=topic)
        assert figure(text, "channel_depth", topic=topic, channel="c") == 9, "all is there"
        after = counters(text)
        fallen = {name: value for name, value in after.items() if 0 < value < before.get(name, 0)}
        assert not fallen
        assert after[f"mq_shards_topic_published_total topic={topic}"] == 0
        assert after[f"mq_shards_channel_messages_total channel=c,topic={topic}"] == 0
        publish(broker, topic, 2)
        after = counters(scraped(broker, "topic_published_total", "channel_messages_total", topic=topic))
        assert after[f"mq_shards_topic_published_total topic={topic}"] == 2
        assert after[f"mq_shards_channel_messages_total channel=c,topic={topic}"] == 2
    finally:
        broker.stop()


def test_what_begins_anew_with_a_worker_is_known(broker: Broker) -> None:
    known = [name for name in counters(scraped(broker)) if "process=mq-worker" in name and "hangs" not in name]
    assert not known


def test_a_scrape_that_was_not_told_in_time_is_followed_by_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique_topic()
    publish(broker, topic, 80)
    real, late = api.call, [b"", b"mq_shards_topic_depth 1\n"]

    def call(server: int, method: str, target: str) -> api.Reply:
        answer = real(server, method, target)
        return dataclasses.replace(answer, body=late.pop()) if late else answer

    monkeypatch.setattr(api, "call", call)
    assert figure(scraped(broker, "topic_published_total", topic=topic), "topic_published_total", topic=topic) == 80
    assert not late


def counters(text: str) -> dict[str, float]:
    """But for what a process that is started again has used and waited for since, and how long its turns took: that
    begins anew with it, and may be above nothing by the next scrape."""
    families = [family for family in text_string_to_metric_families(text) if family.type == "counter"]
    return {
        f"{s.name} {','.join(f'{name}={value}' for name, value in sorted(s.labels.items()))}": s.value
        for family in families if not family.name.endswith(OF_A_PROCESS)
        for s in family.samples
    }  # fmt: skip


def test_it_answers_for_the_others_while_a_worker_hangs_or_is_gone(broker: Broker) -> None:
    topics = [unique_topic() for _ in range(20)]  # on both workers
    for topic in topics:
        publish(broker, topic, 30)
    worker = next(pid for pid in children(broker.running.process.pid) if comm_of(pid) == "mq-worker-1")
    os.kill(worker, signal.SIGSTOP)
    try:
        text = scraped(broker)
        assert found(text, "topic_depth", {}), "the other worker's"
        assert (figure(text, "worker_up", worker="0"), figure(text, "worker_up", worker="1")) == (1, 0)
        assert figure(text, "process_hangs_total", process="mq-worker-0") == 0
        said = {"process": "mq-worker-1"}
        wait_until(lambda: found(scraped(broker), "process_hangs_total", said) == [1.0], "the supervisor has said it")
        begun = time.monotonic()
        stats = api.call(broker.nsq_http_port, "GET", "/stats?format=json").json
        assert time.monotonic() - begun < 5, "it does not wait for who is known to hang"
        assert stats["mq_shards_silent"] == ["mq-worker-1"] and stats["health"] == "NOK - mq-worker-1 does not answer"
        assert {topic["topic_name"] for topic in stats["topics"]} & set(topics), "the other worker's are shown"
    finally:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: figure(scraped(broker), "worker_up", worker="1") == 1, "it is back")
    assert api.call(broker.nsq_http_port, "GET", "/ping").body == b"OK", "nobody is said to hang who has been replaced"
    assert figure(scraped(broker), "process_hangs_total", process="mq-worker-1") == 1


def test_a_gateway_that_goes_on_does_not_say_that_it_hangs_itself(broker: Broker) -> None:
    gateway = next(pid for pid in children(broker.running.process.pid) if comm_of(pid) == "mq-gateway")
    os.kill(gateway, signal.SIGSTOP)
    try:
        wait_until(lambda: f"(pid {gateway}) has not answered" in broker.running.said(), "it is said to hang")
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert api.call(broker.nsq_http_port, "GET", "/ping").body == b"OK"


def test_all_of_it_is_in_the_form_of_prometheus(broker: Broker) -> None:
    topic = unique_topic()
    publish(broker, topic, 25)
    text = scraped(broker)
    assert list(text_string_to_metric_families(text))
    if (promtool := shutil.which("promtool")) is not None:
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
