"""Records by number."""
