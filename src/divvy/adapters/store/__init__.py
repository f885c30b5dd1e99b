"""The store: the journal, what readers look at, what people asked for; SQLite, or PostgreSQL by URL."""
