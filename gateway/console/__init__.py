"""The console: pages for a browser, and their API, which the commands for a terminal use too."""
