"""Pulsar's control side: the catalog, what acceptors ask of it, and the REST API. docs/pulsar-catalog.md."""
