"""The terminal: standard streams, consoles, progress, and what the packages log and warn of."""
