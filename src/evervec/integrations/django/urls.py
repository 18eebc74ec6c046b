"""Pages for staff: `path("admin/search/", include("evervec.integrations.django.urls"))`, before that of
the admin."""

from django.contrib import admin
from django.urls import path

from evervec.integrations.django.dashboard import dashboard
from evervec.integrations.django.views import status

app_name = "evervec"
urlpatterns = [
    path("", admin.site.admin_view(status), name="status"),
    path("<str:alias>/", admin.site.admin_view(dashboard), name="dashboard"),
    path("<str:alias>/<path:rest>", admin.site.admin_view(dashboard)),
]
