"""What people look at: contact sheets."""
