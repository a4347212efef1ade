"""The gateway process: what NSQ's tools and nsqlookupd speak besides the TCP protocol (docs/gateway.md)."""
