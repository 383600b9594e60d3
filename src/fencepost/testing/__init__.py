"""For testing: virtual time, the store's conformance suite, the simulator and its checker."""
