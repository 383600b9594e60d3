"""The proof: simulated and real histories under faults, kept so that others can judge them, and the report on them."""
