"""What this process may have, and what it is in the middle of."""
