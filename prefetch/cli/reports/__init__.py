"""What the commands report, as JSON and as text, and the tables that a conversion leaves."""
