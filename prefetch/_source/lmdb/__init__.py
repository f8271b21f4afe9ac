"""Records by number from LMDB's files."""
