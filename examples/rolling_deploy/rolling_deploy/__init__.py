"""A FastAPI application on PostgreSQL, in several processes, that is deployed without anybody noticing."""
