"""How a reader or writer gets to the tasks: so that an executor without this package says so in one line.

Spark pickles it by the name of its class, and where that cannot be imported a task ends in the midst of unpickling,
with a trace of cloudpickle's. What is pickled instead is a function, taken apart and put together again where it comes
to, since it is of no module that could be imported. It imports the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from pyspark import cloudpickle


def _arrive(module: str, name: str, state: bytes) -> Any:  # noqa: ANN401
    """It comes alone: all that it needs it imports."""
    import importlib
    import pickle
    import platform
    import sys

    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(
            f"executor {platform.node()}: {sys.executable} (Python {platform.python_version()}) cannot read or write "
            f"mqshards: {error}. Install the wheel pyspark_mqshards there, of the driver's version"
        ) from None
    made = found.__new__(found)
    made.__dict__.update(pickle.loads(state))
    return made


_by_value = FunctionType(_arrive.__code__, {"__builtins__": __builtins__}, "arrive")
_by_value.__module__ = "__main__"  # by which cloudpickle knows what cannot be imported


class Arrives:
    """Of what Spark sends to tasks."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        state: bytes = cloudpickle.dumps(self.__dict__)  # type: ignore[no-untyped-call]
        return _by_value, (type(self).__module__, type(self).__qualname__, state)
