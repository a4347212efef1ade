"""Shards, the worker processes that own them, and their files on disk."""
