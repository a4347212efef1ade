"""NATS's protocol: its load generator, what it is compared with, and what is measured of it."""
