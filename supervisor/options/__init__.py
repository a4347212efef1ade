"""The command line and the configuration file, and the values that each option may have."""
