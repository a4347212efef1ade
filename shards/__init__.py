"""Shards, the processes that own them, and what is on disk."""
