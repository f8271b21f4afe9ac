"""What a database is made of: listed images, class folders, arrays; each read as records."""
