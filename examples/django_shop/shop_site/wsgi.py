"""`gunicorn shop_site.wsgi`: every worker serves requests and runs jobs."""

import os

from fencepost.django.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop_site.settings")
application = get_wsgi_application()
