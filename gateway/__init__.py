"""The gateway process: serves the HTTP APIs, and tells other servers of topics. To workers it is an acceptor."""
