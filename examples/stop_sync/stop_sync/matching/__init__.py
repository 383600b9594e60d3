"""Which node of the map is which platform of the register.

In reading order: `match` (the stages, one after the other), `stages` (the rules), `free` (who is not matched yet, and
who is near whom), `spots` (stops and nodes, reduced to what is compared).
"""

from stop_sync.matching.match import STAGES, match, match_by_stage

__all__ = ["STAGES", "match", "match_by_stage"]
