"""Survey, mean, previews, check; making databases."""
