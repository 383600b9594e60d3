"""The dashboard: pages rendered on the server, complete without JavaScript.

`paths.py` says which requests are for it, `app.py` answers them, `pages/` has a file per page, `pictures/` draws.
"""
