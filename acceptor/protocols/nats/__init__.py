"""NATS, for clients (serving.py) and between servers (nats_route.py): what happens once in a connection's life,
configuration, who may what; the codecs are csrc/acceptor/protocols/nats/.
"""
