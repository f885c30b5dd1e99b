"""Schema changes in order, and the one way to bring a database up to date."""
