"""What a device is, and the host as one."""
