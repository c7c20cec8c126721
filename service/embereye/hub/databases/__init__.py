"""The databases in which the hub can store its rows: SQLite and PostgreSQL."""
