"""What the pictures keep between two readings. Belongs to the reading thread."""

from __future__ import annotations

from fencepost.insight.board import Reading
from fencepost.insight.pictures.lanes import MarksKept
from fencepost.insight.pictures.needs import Need
from fencepost.insight.pictures.sampling import Samples
from fencepost.insight.pictures.strips import Strips
from fencepost.insight.pictures.tallies import Tallies


class KeptPictures:
    def __init__(self) -> None:
        self.samples = Samples()
        self.marks: MarksKept = {}
        self.needs: tuple[Reading, list[Need], int] | None = None
        self.strips = Strips()
        self.tallies = Tallies()
