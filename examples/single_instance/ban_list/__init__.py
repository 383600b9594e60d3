"""A web application with one scheduler, however it is started. See README.md."""
