"""Everything that reads the store for people: jobs and fires, and why a fire ran or did not.

Used by the command line and by `Scheduler.find_jobs`, `find_fires` and `why`.
"""
