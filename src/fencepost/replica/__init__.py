"""One replica: its loops on one skeleton, over one store.

replica: what the loops share, and the runs      service: the skeleton of a loop
heartbeat, election → declaring (origins) → planner (plan) → worker → settler → janitor, watcher, inspector
data_loss: the data-loss detector                 control: the thread they all run on
"""

from fencepost import moved_names

__getattr__ = moved_names("fencepost.replica.replica", "Identity", "Replica")
