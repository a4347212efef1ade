"""What another server has left on its disk, as a data directory of ours (docs/moving.md)."""
