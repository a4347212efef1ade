"""The parent process: it starts the others, joins them by rings, and starts them again."""

# Nothing is imported here: what comes before the entry point is loaded while a ^C still prints a traceback.
VERSION = "0.1.0"
