"""Started as another server is: its flags and configuration file, in this broker's options."""
