"""Commands for the operator of a broker: each is a client of a running broker, at one of its addresses."""
