"""The command line and the configuration file, and what each option may be."""
