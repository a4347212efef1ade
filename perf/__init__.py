"""Measurement: the load generator, the brokers it is pointed at, and what is made of the figures."""
