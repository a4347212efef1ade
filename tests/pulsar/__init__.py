"""Pulsar: its control side, beside what a real broker answered."""
