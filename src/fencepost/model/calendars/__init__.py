"""Where closed days come from: the `holidays` library, iCalendar files, tables of `fencepost.toml`.

Plain data: dates with names, and windows. What a calendar does with them is in `fencepost.model.triggers.calendar`.
"""
