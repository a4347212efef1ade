"""What NSQ's tools speak besides the TCP protocol: the HTTP API, nsqlookupd, statsd."""
