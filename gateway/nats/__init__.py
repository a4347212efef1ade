"""The monitoring that nats-server has, over HTTP and for users of the system account."""
