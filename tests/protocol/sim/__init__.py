"""The simulator: real replicas, real protocol, virtual time, faults drawn by a seed.

    python -m tests.protocol.sim --seeds 500          many seeds, in parallel
    python -m tests.protocol.sim --seed 17 --trace    one seed again, as a readable trace

Three replicas run their real loops, each in a process of its own with wrong clocks, over the reference model
behind a bad network. First come faults, then all is well and everything must settle. The same seed gives the
same trace, on any machine.
"""

from __future__ import annotations

from tests.protocol.sim.simulation import Result, Simulation, simulate

__all__ = ["Result", "Simulation", "simulate"]
