"""One record's bytes: wire format, images, pixels, faults."""
