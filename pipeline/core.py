"""The C core, for work on each message: the broker's if it is installed, else the small one of the wheel
`pyspark_mqshards`. If there is neither, importing this module raises ImportError, and the same is done in Python
(decode.py, encode.py).
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
    except ImportError as error:  # it is installed, but built for another machine
        logging.getLogger(__name__).warning("without the C core, and so slower: %s", error)
        raise

__all__ = ["ffi", "lib"]
