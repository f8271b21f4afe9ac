"""Decoded images kept for the next time that their records are read, in memory or in a file."""
