from django.contrib import admin
from django.urls import include, path
from shop.views import pay

urlpatterns = [
    path("admin/", admin.site.urls),
    path("fencepost/", include("fencepost.django.urls")),
    path("pay/<int:order>/", pay),
]
