"""What is told of a failure of Spark's, of texts as Spark gives them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mq_shards.pipeline import failure
from mq_shards.pipeline.command import main
from mq_shards.pipeline.failure import told, without_plan_and_stack

from tests.pipeline.serving import Gateway

MESSAGE = "[STREAM_FAILED] Query [id = 1] terminated with exception: [TASK_WRITE_FAILED] Task failed. SQLSTATE: XXKST"
PLAN = "\n=== Streaming Query ===\nCurrent Available Offsets: {...}\n\nLogical Plan:\n~WriteToMicroBatch"
STACK = (
    "\n\nJVM stacktrace:\norg.apache.spark.sql.streaming.StreamingQueryException: it\n\tat a.b$.C(D.scala:3)\n"
    "Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed.\n\tat a.b(C.scala:1)\n"
    "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io.X.w(Native Method)\n\t... 9 more\n"
)
PYTHON = "\n\nJVM stacktrace:\nCaused by: org.apache.spark.PythonException: Traceback (most recent call last):"
FAILED = PYTHON.replace(
    "PythonException: ", "SparkException: [PYTHON_STREAMING] Failed when it performs latestOffset: "
)
RAISED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Failed: Traceback (most recent call last):
  File "/a/client.py", line 421, in once
    reply = ask()
            ^^^^^
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/a/stream.py", line 80, in _look
    found = self.streams()
"""
LACKING = "ImportError: executor e1: /p (Python 3.11) cannot read or write mqshards: No module named 'mq_shards'"
REFUSED = "mq_shards.pipeline.client.BrokerError: broker a:1: GET /v1/topics: [Errno 111] Connection refused"

ALONE = f"\n\nJVM stacktrace:\nCaused by: org.apache.spark.SparkException: [PYTHON_STREAMING] Failed: {REFUSED}"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            f"{RAISED}{REFUSED}\n SQLSTATE: 38000 SQLSTATE: XXKST{PLAN}{PYTHON}",
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Failed:\n"
            "ConnectionRefusedError: [Errno 111] Connection refused\n"
            f"{REFUSED}\n SQLSTATE: 38000 SQLSTATE: XXKST",
        ),
        (
            f"{RAISED}{REFUSED}{FAILED}",
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Failed:\n"
            f"ConnectionRefusedError: [Errno 111] Connection refused\n{REFUSED}",
        ),
        (
            f"{RAISED}{LACKING}{FAILED}",
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Failed:\n"
            f"ConnectionRefusedError: [Errno 111] Connection refused\n{LACKING}",
        ),
        (f"{RAISED}KeyError: 'a'", f"{RAISED}KeyError: 'a'"),
        (f"Failed to plan: {REFUSED}\n{ALONE}", f"Failed to plan: {REFUSED}"),
        (f"{MESSAGE}{ALONE}", f"{MESSAGE}\nbecause of SparkException: [PYTHON_STREAMING] Failed: {REFUSED}"),
        (MESSAGE + PLAN + STACK, f"{MESSAGE}\nbecause of IOException: No space left on device"),
        (MESSAGE + PLAN, MESSAGE),
        (f"Job aborted: No space left on device{STACK}", "Job aborted: No space left on device"),
        (f"[PYTHON] no\nTraceback\n  File x, line 1{PYTHON}", "[PYTHON] no\nTraceback\n  File x, line 1"),
        ("Lost task 0: E: no\n\tat a.b(C.scala:1)\n\t... 3 more\n\nDriver stacktrace:", "Lost task 0: E: no"),
        ("[TABLE] none", "[TABLE] none"),
        ("", ""),
    ],
)
def test_the_message_and_the_cause_are_told_without_plan_and_stack(said: str, expected: str) -> None:
    assert told(said) == expected


@pytest.mark.parametrize("little", [0, 1 << 62])
def test_a_job_that_fails_says_if_its_file_system_is_full(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], little: int
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(failure, "LITTLE_BYTES", little)
    to = tmp_path / "not" / "there"
    assert main(["report", "--brokers", gateway.address, "--to", str(to), "--topics", "nowhere"]) == 1
    why, *more = capsys.readouterr().err.splitlines()
    assert why == "mq-pipeline: there is no such topic; there are 0 topics"
    assert len(more) == (little > 0)
    for line in more:
        assert re.fullmatch(rf"mq-pipeline: the file system of {to} is full: \d+ KiB are left", line)


def test_of_a_query_that_failed_neither_offsets_nor_plan_are_said() -> None:
    plan = [
        "=== Streaming Query ===", "Identifier: raw [id = 1]", "Current Committed Offsets: {Ours@1: {}}", "",
        "Current State: ACTIVE", "Thread State: RUNNABLE", "", "Logical Plan:", "~Write raw", "+- ~Project [a]",
        "   :- ~Union", "   :  +- ~Scan", "   +- ~Scan",
    ]  # fmt: skip
    said = ["Flow 'raw' has FAILED.", "Error: [STREAM_FAILED]", *plan, "No space left on device", "Flow 'b' SKIPPED"]
    assert list(without_plan_and_stack(said)) == [line for line in said if line not in plan]


def test_of_a_flow_that_cannot_be_resolved_the_plan_is_not_said() -> None:
    plan = ["'Project ['nope]", "+- SubqueryAlias messages", "   +- LocalRelation <empty>, [topic#133]", ""]
    said = ["Failed to resolve flow: 'a.b'.", "Error: [UNRESOLVED_COLUMN] no `nope`", *plan, "Run is FAILED"]
    assert list(without_plan_and_stack(said)) == [line for line in said if line not in plan]


def test_of_a_failure_in_python_the_stack_is_not_said() -> None:
    said = [
        "Flow 'raw' has FAILED.", "Error: [PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):",
        '  File "/a/stream.py", line 77, in _look', "    found = self.streams()", "            ^^^^^^^^^^^^^^",
        "OSError: no", "", "The above exception was the direct cause of the following exception:", "",
        "Traceback (most recent call last):", '  File "/a/client.py", line 1, in f', "a.BrokerError: broker a:1: 401",
        " SQLSTATE: 38000", "Flow 'b' SKIPPED",
    ]  # fmt: skip
    told = [line for line in without_plan_and_stack(said) if line]
    assert told == [
        "Flow 'raw' has FAILED.", "Error: [PYTHON_DATA_SOURCE_ERROR] Failed:", "OSError: no",
        "a.BrokerError: broker a:1: 401", " SQLSTATE: 38000", "Flow 'b' SKIPPED",
    ]  # fmt: skip


def test_why_a_run_of_a_project_failed_is_told_in_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_pipelines = pytest.importorskip("mq_shards.pipeline.spark_pipelines")
    raised = f"pyspark.errors.exceptions.connect.StreamingQueryException: {MESSAGE}{PLAN}{STACK}"
    program = f"import sys; print('Flow raw has FAILED'); sys.stderr.write({raised!r}); sys.exit(1)"
    monkeypatch.setattr(spark_pipelines, "_BEGIN", program)
    with pytest.raises(spark_pipelines.PipelineError) as failed:
        list(spark_pipelines.Application(None, 1).run([], Path("/dir")))
    assert str(failed.value) == f"{MESSAGE}\nbecause of IOException: No space left on device"
    assert failed.value.said == f"Flow raw has FAILED\n{raised.partition(': ')[2].strip()}"
