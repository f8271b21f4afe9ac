"""Blob: an N-dimensional array on two synced memories."""
