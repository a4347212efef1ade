"""A job that is stopped ends as stopped, whatever else the signal has ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline import session
from mq_shards.pipeline.archive import _stop_on_signal
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_raised_because_the_jvm_heard_the_signal_too_is_a_stop(number: signal.Signals) -> None:
    with pytest.raises(Stopped) as stopped, stopped_by_signals():
        with contextlib.suppress(Stopped):
            signal.raise_signal(number)
        raise ConnectionRefusedError("the JVM that is to be ended is gone")
    assert stopped.value.exit_code == 128 + number
    with _stop_on_signal() as heard:
        signal.raise_signal(number)
        raise ConnectionRefusedError("the query that is to be ended is gone")
    assert heard == [number]


def test_a_failure_without_a_signal_stays_one() -> None:
    with pytest.raises(ConnectionRefusedError), stopped_by_signals():
        raise ConnectionRefusedError
    with pytest.raises(ConnectionRefusedError), _stop_on_signal():
        raise ConnectionRefusedError


class Begins:
    """As PySpark: takes SIGINT, and starts a program in a way that says what is to be done before it."""

    def getOrCreate(self) -> bytes:  # noqa: N802
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return _told_to_end()


def _told_to_end() -> bytes:
    script = "kill -TERM $$; echo alive"
    return subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, preexec_fn=bool, check=False).stdout


def test_a_jvm_leaves_signals_to_the_job_that_began_it() -> None:
    with stopped_by_signals():
        ours = signal.getsignal(signal.SIGINT)
        assert session._begun(cast(Any, Begins())) == b"alive\n"
        assert signal.getsignal(signal.SIGINT) is ours
        assert _told_to_end() == b"", "what is started later hears of it"
