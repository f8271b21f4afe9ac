"""Options: load, check, explain."""
