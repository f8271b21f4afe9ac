"""Threads, schedule, delivery."""
