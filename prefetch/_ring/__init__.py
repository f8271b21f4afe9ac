"""The memory of batches: slots, leases, the batch handed out."""
