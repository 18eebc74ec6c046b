from django.contrib import admin
from django.urls import include, path

from notes import views

urlpatterns = [
    path("admin/search/", include("evervec.integrations.django.urls")),
    path("admin/", admin.site.urls),
    path("notes/", views.write),
    path("search/", views.search),
    path("async-search/", views.async_search),
]
