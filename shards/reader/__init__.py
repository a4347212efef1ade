"""The logs of a data directory, read by another process than their workers (docs/pipeline-internals.md).

Nothing here takes a lock, keeps a file open between calls or maps a log: segments grow, are cut and vanish at any time.
"""
