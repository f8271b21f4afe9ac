"""The public feed, opening it, its saved state."""
