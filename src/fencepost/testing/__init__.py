"""For testing: virtual time and fake fires for your jobs, the conformance suite for your store."""

from fencepost.runs.fake import FakeFire
from fencepost.testing.virtual import VirtualTime, virtual

__all__ = ["FakeFire", "VirtualTime", "virtual"]
