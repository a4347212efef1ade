"""One module for each wire protocol: what its half in C leaves to Python."""
