"""`uvicorn shop_site.asgi:application`: every worker serves requests and runs jobs."""

import os

from fencepost.django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop_site.settings")
application = get_asgi_application()
