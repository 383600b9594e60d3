"""For testing: virtual time for your jobs, the stores' conformance suite, the simulator and its checker."""

from fencepost.testing.fake import FakeFire
from fencepost.testing.virtual import VirtualTime, virtual

__all__ = ["FakeFire", "VirtualTime", "virtual"]
