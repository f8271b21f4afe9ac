"""SyncedMemory: where the newest bytes are."""
