"""`fencepost demo`: real replicas on one SQLite file, watched while the leader is killed, and then audited.

app         the jobs: ordinary Fencepost code, the file to read first
diary       what the jobs' bodies write down themselves, apart from the store
processes   the replicas, started and ended by process id
watch       what the store shows, taken anew ten times a second
plot        what happens when; `show` plays it
screen      the live view; `lines` is the same for a log; `words` is what both say
account     the reckoning at the end; `summary` prints it
"""
