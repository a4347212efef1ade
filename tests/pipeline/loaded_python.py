"""What Spark's JVM of the tests starts as Python: forked from one process that has loaded the modules.

Spark starts a Python for each kind of work and for each stream, and its daemons fork workers that have loaded nothing
yet: 0.5 s of processor each time. What is forked here has the words, streams and environment that Spark gives it; left
out are the interpreter's own start and the imports. Jobs in JVMs of their own, as in the long tests, start programs.

`python -m tests.pipeline.loaded_python SOCKET` is the process that forks. It ends at the end of its standard input.
`python loaded_python.py SOCKET WORDS` is what Spark starts. It ends as what is forked for it does, with its status.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

REQUEST_BYTES = 1 << 20
STREAMS = (0, 1, 2)
FDS_BYTES = 4 * (len(STREAMS) + 1)
# What the kinds of Python processes run, and what they would load later.
MODULES = (
    "pyspark.daemon", "pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write", "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters", "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source", "mq_shards.pipeline.source", "mq_shards.pipeline.stream_with_place",
    "mq_shards.pipeline.stream_without_place", "mq_shards.pipeline.task", "mq_shards.pipeline.write", "pyarrow.compute",
)  # fmt: skip


def ask(path: str, words: list[str]) -> int:
    """Returns the exit status of what was forked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(path)
        request = json.dumps({"words": words, "environment": dict(os.environ)})
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STREAMS))]
        asked.sendmsg([request.encode()], rights)
        for stream in STREAMS:  # the other ends see when they are closed there
            os.close(stream)
        return int(asked.recv(64) or b"1")


def serve(path: str) -> None:
    import gc
    import importlib
    import select
    import signal

    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, 0], [], [])
            if 0 in ready:
                return
            asked, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                asked.send(str(begin(asked)).encode())
                os._exit(0)
            asked.close()


def begin(asked: socket.socket) -> int:
    """As a program begins: with its words, streams and environment."""
    import runpy
    import traceback

    data, ancillary, _, _ = asked.recvmsg(REQUEST_BYTES, socket.CMSG_LEN(FDS_BYTES))
    request = json.loads(data)
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    for stream, fd in zip(STREAMS, fds, strict=True):
        os.dup2(fd, stream)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    how, what, *words = request["words"]
    sys.argv = [what, *words]
    try:
        if how == "-c":
            exec(what, {"__name__": "__main__"})
        else:
            assert how == "-m", request["words"]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(ask(sys.argv[1], sys.argv[2:]) & 255)
    serve(sys.argv[1])
