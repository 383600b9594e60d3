"""`make demo`: the whole system on this machine, its leader killed in the middle of a run, and what becomes of it.

`actor` is how each process is started, `plot` what happens, `view` what is shown, `ending` whether it was right.
"""
