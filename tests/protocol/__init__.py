"""The protocol under test: simulator, checker, mutants, comparison. Only tests use this."""
