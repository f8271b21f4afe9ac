"""Which record comes when, and its random words; pure functions."""
