"""What a log of terabytes costs who reads it: python -m perf.many_segments [--segments N] [--topics N] [--stretches N]

One shard is made of segments that are holes of 64 MiB with an index each, as a broker leaves them that takes batches.
All that a reader does before it reads bytes it does with the indexes: their first load, a look at whether there is
something new, a listing of topics, a topic's offsets, the place of a time. Shards are independent of each other, so
a broker of 64 has 64 times these figures, but for those of one topic, which is in one shard.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.paths import segment_name, shard_path
from mq_shards.shards.reader import index_file
from mq_shards.shards.reader.scan import Columns
from mq_shards.shards.reader.segment import Known, Segment
from mq_shards.shards.reader.shard import ShardView
from mq_shards.shards.reader.stretches import build
from mq_shards.shards.segment_header import Header, encode_header

SEGMENT_BYTES: Final = 64 << 20
MESSAGES: Final = 1000  # messages in a stretch
SECOND_NS: Final = 1_000_000_000


def make(directory: Path, segments: int, topics: int, stretches: int) -> None:
    """Makes the shard. Each segment has all topics, in stretches of MESSAGES, all published in one second."""
    shard_path(directory, 0).mkdir(parents=True)
    names = {number: Known(b"topic-%d" % number, 0) for number in range(topics)}
    each = max(1, stretches // topics)
    number = np.repeat(np.arange(topics, dtype="<u4"), each)
    size = np.full(len(number), (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) // len(number), "<u4")
    offset = (SEGMENT_HEADER_BYTES + np.arange(len(number)) * size).astype("<u4")
    for n in range(segments):
        head = encode_header(Header(0, 1, n, 0, SEGMENT_BYTES if n else 0, SECOND_NS))
        path = shard_path(directory, 0) / segment_name(n)
        with path.open("wb") as file:
            file.write(head)
            file.truncate(SEGMENT_BYTES)
        seq = (np.tile(np.arange(each, dtype="<u8"), topics) + np.uint64(n * each)) * np.uint64(MESSAGES)
        at = np.full(len(number), (n + 1) * SECOND_NS, "<u8")
        counts = np.full(len(number), MESSAGES, "<u4")
        part = build(number, seq, counts, offset, size, at, at, np.zeros(len(number), "?"))
        index_file.save(path, Segment(n, bytes(head), SEGMENT_BYTES, True, [part], topics=names), SEGMENT_BYTES)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=1563, help="of the shard (default: 1563, 100,000 in 64 shards)")
    parser.add_argument("--topics", type=int, default=313, help="of the shard (default: 313, 20,000 in 64 shards)")
    parser.add_argument("--stretches", type=int, default=313, help="of a segment (default: 313, of 209 KiB)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make(directory, options.segments, options.topics, options.stretches)
        indexes = sum(path.stat().st_size for path in shard_path(directory, 0).glob("*.index"))
        view = ShardView(directory, 0, 1, Columns())
        before, files = resident_bytes(), open_files()
        # The last segment is a hole without an index: it is read to its end each time, which is not what is measured.
        steps: list[tuple[str, Callable[[], object]]] = [
            ("indexes are loaded", view.refresh), ("is there something new", view.refresh), ("its state", view.state),
            ("all topics are listed", view.topics), ("they are listed again", view.topics),
            ("a topic's offsets", lambda: view.topic("topic-0")),
            ("a range of a topic is found", lambda: view.find("topic-0", 1000, 2000)),
        ]  # fmt: skip
        print(f"{options.segments} segments, {options.topics} topics in each, {indexes / options.segments:.0f} bytes "
              f"of index a segment")  # fmt: skip
        for what, step in steps:
            began = time.process_time()
            step()
            print(f"{what:30} {(time.process_time() - began) * 1000:10.2f} ms of processor")
        print(f"resident {(resident_bytes() - before) / 1e6:.1f} MB, {open_files() - files} files")


if __name__ == "__main__":
    main()
