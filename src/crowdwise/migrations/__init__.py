"""The steps by which the store of the server came to its tables (alembic), run at start in their order."""
