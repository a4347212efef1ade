"""The acceptor process, which owns connections: C moves the bytes (csrc/acceptor/calls.h), Python does the rest."""
