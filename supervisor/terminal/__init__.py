"""Commands for whoever looks after a broker: each is a client of a broker that runs, over the addresses that it has."""
