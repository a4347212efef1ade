"""Pulsar's binary protocol: the rare commands. The codec, csrc/acceptor/protocols/pulsar/, handles the others."""
