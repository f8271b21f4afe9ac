"""Records that are stored: found, written as files, and copied into other databases."""
