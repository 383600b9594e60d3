"""What is read from the store to be shown: found jobs and fires, and why a fire ran or did not.

Used by the command line and by `Scheduler.find_jobs`, `find_fires` and `why`.
"""
