"""The only place where the planners meet: each runs on the snapshot that the one before it left."""
