"""What the values of a database mean: one module a layout."""
