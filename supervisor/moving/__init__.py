"""Starts like another server: its flags and configuration file, translated to this broker's options."""
