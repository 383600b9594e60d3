"""What the pictures keep between two readings. Belongs to the reading thread."""

from __future__ import annotations

from fencepost.insight.pictures.sampling import Samples
from fencepost.insight.pictures.strips import Strips


class Kept:
    def __init__(self) -> None:
        self.samples = Samples()
        self.strips = Strips()
