"""The C core, for what is done with each message: the broker's where that is installed, else the small one of the wheel
`pyspark_mqshards`. Where there is neither, an ImportError: then the same is done in Python (decode.py, encode.py).
"""

from __future__ import annotations

import logging

try:
    from mq_shards.csrc._core import ffi, lib
except ModuleNotFoundError:
    try:
        from mq_shards.csrc._spark_core import ffi, lib
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # it is there, and of another machine
        logging.getLogger(__name__).warning("without the C core, and so slower: %s", error)
        raise

__all__ = ["ffi", "lib"]
