"""NSQ's protocol and HTTP API: their load generators, what they are compared with, and what is measured of them."""
