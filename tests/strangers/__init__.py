"""Clients that mean no good, all of them together: what they cost the broker, and what others notice of them."""
