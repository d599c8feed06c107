"""The scripts behind the make targets; nothing here is needed to read or run the course."""
