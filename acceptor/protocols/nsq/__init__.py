"""NSQ's protocol: commands that come about once per connection; the codec is csrc/acceptor/protocols/nsq/."""
