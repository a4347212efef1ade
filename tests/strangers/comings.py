"""Clients that come, name something that nobody has named before, and go: one a call. `n` is another one each time."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Final

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import CONNECT, INFO, RouteWire
from tests.nats.wire import Wire as NatsWire
from tests.nsq.api import call
from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.wire import Wire as PulsarWire
from tests.pulsar.wire import entry_of, metadata, send_frame

Ports = dict[str, int]
KEPT: Final = "persistent://public/default/kept"


def half_a_command(ports: Ports, n: int) -> None:
    halves = (
        ("beanstalk", b"put 0 0 60 9\r\nhal"), ("nsq", b"  V2PUB t%d\n\0\0" % n), ("nats", b"PUB s.%d 9\r\nx" % n),
        ("http", b"POST /v1/act HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx"),
    )  # fmt: skip
    for at, said in halves:
        with socket.create_connection(("127.0.0.1", ports[at]), timeout=60) as s:
            s.sendall(said)


def job_in_a_new_tube(ports: Ports, n: int) -> None:
    with BeanstalkWire(ports["beanstalk"]) as wire:
        wire.use(f"tube{n}")
        wire.watch_only(f"tube{n}")
        wire.put(b"job")
        number, _ = wire.reserve()
        assert wire.ask(f"delete {number}") == b"DELETED"


def client_of_nsq(ports: Ports, n: int) -> None:
    with NsqWire(ports["nsq"]) as wire:
        about = json.dumps({"client_id": f"c{n}", "hostname": f"h{n}", "user_agent": f"u{n}"}).encode()
        assert wire.ask(b"IDENTIFY\n" + struct.pack(">I", len(about)) + about).data == b"OK"
        assert wire.ask(f"SUB t{n}#ephemeral c{n}#ephemeral\n").data == b"OK"


def topic_of_nsq(ports: Ports, n: int) -> None:
    assert call(ports["nsq-http"], "POST", f"/pub?topic=new{n}", b"message").status == 200
    assert call(ports["nsq-http"], "POST", f"/topic/delete?topic=new{n}").status == 200


def odd_request(ports: Ports, n: int) -> None:
    assert call(ports["nsq-http"], "GET", f"/nothing{n}").status == 404
    assert call(ports["http"], "GET", f"/v1/nothing{n}").status == 404


def subscriber(ports: Ports, n: int) -> None:
    wire = NatsWire(ports["nats"])
    wire.send(b'CONNECT {"name":"n%d","verbose":false}\r\n' % n)
    wire.send(b"SUB s.%d.> 1\r\nSUB q.%d group%d 2\r\nPUB s.%d.x reply.%d 2\r\nhi\r\n" % (n, n, n, n, n))
    wire.barrier()
    wire.socket.close()


def leaf_node(ports: Ports, n: int) -> None:
    wire = LeafWire(ports["nats-leaf"])
    wire.connect(name=f"leaf{n}", cluster=f"cluster{n}")
    wire.send(b"LS+ leaf.%d\r\n" % n)
    wire.barrier()
    wire.socket.close()


def server_of_the_cluster(ports: Ports, n: int) -> None:
    wire = RouteWire(ports["nats-route"])
    wire.join(f"{n:05}"[-5:], INFO | {"cluster": "c"}, CONNECT | {"cluster": "c"})
    wire.send(b"RS+ $G route.%d\r\n" % n)
    wire.barrier()
    wire.socket.close()


def producer(ports: Ports, n: int) -> None:
    with PulsarWire(ports["pulsar"]).connect() as wire:
        wire.producer(KEPT, producer_name=f"p{n}")
        wire.raw(send_frame(1, 0, entry_of(metadata(sequence_id=0, producer_name=f"p{n}"), b"x")))
        wire.expect("send_receipt")


def subscription(ports: Ports, n: int) -> None:
    with PulsarWire(ports["pulsar"]).connect() as wire:
        wire.subscribe(KEPT, f"s{n}", kind=n % 4, consumer_name=f"c{n}")
        wire.ask("unsubscribe", "success", consumer_id=1)
        wire.subscribe(KEPT, f"r{n}", durable=False, consumer=2)


def transaction(ports: Ports, n: int) -> None:
    with PulsarWire(ports["pulsar"]).connect() as wire:
        wire.ask("tcClientConnectRequest", "tcClientConnectResponse", tc_id=0)
        begun = wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=60, tc_id=0)
        which = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
        wire.ask("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[KEPT], **which)
        wire.producer(KEPT)
        wire.raw(send_frame(1, 0, entry_of(metadata(sequence_id=0, **which), b"x"), **which))
        wire.expect("send_receipt")
        wire.ask("endTxn", "endTxnResponse", txn_action=n % 2, **which)


def topic_of_pulsar(ports: Ports, n: int) -> None:
    with PulsarWire(ports["pulsar"]).connect() as wire:
        wire.producer(f"persistent://public/default/new{n}")
    path = f"/admin/v2/persistent/public/default/new{n}?force=true"
    assert call(ports["pulsar-http"], "DELETE", path).status == 204


def namespace(ports: Ports, n: int) -> None:
    path = f"/admin/v2/namespaces/public/new{n}"
    assert call(ports["pulsar-http"], "PUT", path, b"{}", {"Content-Type": "application/json"}).status == 204
    assert call(ports["pulsar-http"], "DELETE", path).status == 204


COMINGS: Final[tuple[Callable[[Ports, int], None], ...]] = (
    half_a_command, job_in_a_new_tube, client_of_nsq, topic_of_nsq, odd_request, subscriber, leaf_node,
    server_of_the_cluster, producer, subscription, transaction, topic_of_pulsar, namespace,
)  # fmt: skip
