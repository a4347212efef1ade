"""The C half of mq-shards: what happens once per message. `surface/` is all that Python sees of it."""
