from django.conf import settings
from django.db import models

from evervec.integrations.django import SearchIndex


class Note(models.Model):
    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True)
    archived = models.BooleanField(default=False)

    evervec = SearchIndex(text=["title", "body"], metadata=["author"])

    def __str__(self) -> str:
        return str(self.title)
