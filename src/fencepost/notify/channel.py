"""What a channel is. It is code and configuration of the process: its URLs and secrets never enter the store, which
knows it by its name alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencepost.model.notices import Causes, Notice


class Channel(Protocol):
    @property
    def name(self) -> str:
        """Unique in a namespace; shown by commands, API and dashboard. It never contains a secret."""

    @property
    def causes(self) -> Causes:
        """What it delivers if its rule does not say `on=`."""

    async def deliver(self, notices: Sequence[Notice]) -> None:
        """One notice, or a digest. Raises `DeliveryFailed`; to try again is up to the outbox, so a notice may be
        delivered twice, under the same id."""
