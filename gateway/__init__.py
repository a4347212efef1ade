"""The gateway process: serves the HTTP APIs, and tells nsqlookupd and statsd of topics. To workers it is an
acceptor."""
