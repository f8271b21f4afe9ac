"""Measuring a feed: kinds of training loops, rounds in turns, and their table."""
