"""What the stores with one table for each kind of row share: SQLite and MySQL. They differ in their statements."""
