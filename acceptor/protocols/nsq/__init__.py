"""NSQ's protocol: what comes once in a connection's life, and is rare; the codec is csrc/acceptor/protocols/nsq/."""
