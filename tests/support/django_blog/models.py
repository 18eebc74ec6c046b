import uuid
from typing import Any

from django.db import models

from evervec.integrations.django import SearchIndex


class Author(models.Model):
    name = models.CharField(max_length=50)


class PublishedManager(models.Manager):
    def get_queryset(self) -> Any:
        return super().get_queryset().filter(published=True)


class Article(models.Model):
    title = models.CharField(max_length=100)
    body = models.TextField(blank=True)
    author = models.ForeignKey(Author, models.CASCADE, null=True)
    published = models.BooleanField(default=True)
    year = models.IntegerField(default=2024)
    token = models.UUIDField(default=uuid.uuid4, null=True)
    printed_at = models.DateTimeField(null=True)
    price = models.DecimalField(max_digits=6, decimal_places=2, null=True)

    objects = models.Manager()
    live = PublishedManager()
    evervec = SearchIndex(
        text=["title", "body"], title="title",
        metadata=["author", "year", "published", "token", "printed_at", "price"],
    )  # fmt: skip


class Recent(Article):
    class Meta:
        proxy = True


class Place(models.Model):
    name = models.CharField(max_length=50)

    search = SearchIndex(text="name")


class Cafe(Place):
    """Has a row in the parent's table too, by which it is searched."""

    seats = models.IntegerField(default=1)


class Museum(Place):
    """Is searched by its own column as well."""

    exhibits = models.TextField()

    museums = SearchIndex(text="exhibits")


class Described(models.Model):
    text = models.TextField(db_column="Le texte")

    evervec = SearchIndex(text="About: {text}")

    class Meta:
        abstract = True


class Country(Described):
    code = models.CharField(max_length=8, primary_key=True)

    class Meta:
        db_table = "The Länder; select 'all'"


class Thing(Described):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)


class Line(Described):
    """A line of an order: its key is that of the order with its place there."""

    pk = models.CompositePrimaryKey("order", "place")
    order = models.CharField(max_length=20)
    place = models.IntegerField()


class Team(models.Model):
    member = models.OneToOneField(Author, models.CASCADE, primary_key=True)
    tenant = models.CharField(max_length=20)
    motto = models.TextField()

    evervec = SearchIndex(text="motto", tenant="tenant", kind="team")
