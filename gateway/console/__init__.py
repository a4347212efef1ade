"""The console: pages for a browser, and the API behind them, which the terminal's commands use too."""
