"""The acceptor process, which owns connections: C moves the bytes (csrc/acceptor/acceptor.h), Python does the rest."""
