"""Turns what another server has left on its disk into a data directory of ours (docs/moving.md)."""
