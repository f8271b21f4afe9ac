"""Reading and writing files; knows no feed."""
