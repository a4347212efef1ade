#!/bin/sh
# What Spark starts as Python on this machine: see worker_python.py.
PYTHONPATH=$MQ_PIPELINE_PYTHONPATH exec "$MQ_PIPELINE_PYTHON" "$@"
