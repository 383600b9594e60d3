"""The rules of the protocol: what each operation of a store decides. Pure: no I/O, no clock, no chance.

An operation is a function `(rows, at, …)`: the rows of the store, and the moment of its clock. The same operations at
the same moments give the same rows and the same replies. In the order of a fire's life:

    definitions   which definition of a job holds
    jobs          declare, pause, resume, remove, read
    calendars     where a calendar begins and ends, and what it still owes
    targets       tasks that no replica knows
    planning      fires found in calendars are put on record
    decide        misfire and overlap: what becomes of the fires of one job that are due
    claims        a replica asks for work
    fast_path     which fires need no decision
    updates       a run reports and is settled
    fires         started by hand, cancelled
    chains        jobs that follow others
    debts         what is owed to a job whose row cannot be read
    ledger        how fires end, and when those of a job must next be decided
    notify_rules  which causes of which jobs channels are told of
    outbox        what channels are told of
    watching      what did not happen
    leadership    the lease
    presence      heartbeats, the dead and what they ran
    data_loss     when acknowledged writes may be gone
    history       what is kept, and for how long

Safety is in the fire's row and its token; leadership only saves work.
"""
