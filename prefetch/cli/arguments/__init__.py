"""What stands on a command line: configurations, files to write, and what is wrong with them."""
