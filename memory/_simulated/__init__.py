"""A device of host memory with threads for streams, and one that fails on command."""
