"""One run, from the claim to what became of it.

tasks: what can be run      execute: one run, in the order of its life      owner: the replica as a run knows it
host, bodies/: where the function runs      fire: what the function sees of its run      fenced/: effects in SQL
output, failures, masking: what it says      events: what the rest of the process hears of it
"""
