"""Imported first in a process that runs one function of a job: there nothing has set Django up."""

import django

django.setup()
