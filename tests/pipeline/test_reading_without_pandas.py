"""pyarrow loads pandas for some of its functions, which takes as much processor as reading a million messages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.pipeline.serving import Gateway
from tests.servers import ROOT

# Reads a topic alone, and many small ones in one task, as a task does.
PROGRAM = """
import sys
from mq_shards.pipeline.batch import PlainBatchReader
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.source import SCHEMA
for topics in ("a", "a,b,c"):
    options = ReadOptions.parse({"brokers": sys.argv[1], "topics": topics}, streaming=False)
    reader = PlainBatchReader(options, SCHEMA)
    (task,) = reader.partitions()
    batches = list(reader.read(task))
    print(topics, sum(batch.num_rows for batch in batches), "pandas" in sys.modules)
    print([topic for batch in batches for topic in batch["topic"].to_pylist()])
"""


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="there is no pandas that could be loaded")
def test_a_task_that_reads_loads_no_pandas(gateway: Gateway) -> None:
    for topic in "abc":
        for body in (b"1", b"2"):
            gateway.topic(topic).add(body)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, gateway.address], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "a 2 False", "['a', 'a']",
        "a,b,c 6 False", "['a', 'a', 'b', 'b', 'c', 'c']",
    ]  # fmt: skip
