"""What is done to a record, on the host or the device."""
