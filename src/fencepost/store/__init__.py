"""Where fires, claims and leases live. `base` is the interface, `state` the pure model of it."""
