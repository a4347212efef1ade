"""Measurement: load generators, the brokers that they load, and the evaluation of the figures."""
