"""Rings of records in shared memory, from Python: for the supervisor, which creates them, and for tests and perf."""

from mq_shards.ringbuf.ring import Consumer, Producer, Record, RingError, create

__all__ = ["Consumer", "Producer", "Record", "RingError", "create"]
