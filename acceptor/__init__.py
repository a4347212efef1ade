"""The process that owns connections: C moves the bytes (csrc/acceptor/acceptor.h), Python answers the rare commands."""
