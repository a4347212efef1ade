"""Pulsar's binary protocol: what comes once a producer or consumer; the codec is csrc/acceptor/protocols/pulsar/."""
