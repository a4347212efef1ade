"""The gateway process: HTTP APIs, and who is to be told of topics. To workers it is one more acceptor."""
