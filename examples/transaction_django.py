"""One transaction for your rows and their embeddings, with Django.

python examples/transaction_django.py shop.db
python examples/transaction_django.py postgresql://user@host/database
"""

import sys
from urllib.parse import parse_qsl, urlsplit

import django
from django.conf import settings

import evervec


def database(store: str) -> dict[str, object]:
    """The store's URL as an entry of Django's DATABASES."""
    if not store.startswith("postgresql://"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": store}
    parts = urlsplit(store)
    host = dict(parse_qsl(parts.query)).get("host", parts.hostname or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": host,
        "PORT": str(parts.port or ""),
    }


def main(store: str) -> None:
    settings.configure(DATABASES={"default": database(store)}, USE_TZ=True)
    django.setup()
    from django.db import connection, transaction

    with evervec.open(store, embedder="hashing") as ev:
        with connection.cursor() as cursor:
            cursor.execute("create table products (id integer primary key, name text)")

        with transaction.atomic():  # commits the row and its job together
            with connection.cursor() as cursor:
                cursor.execute("insert into products values (1, 'a red bicycle')")
            ev.add("product", "a red bicycle", id=1, conn=connection)

        try:
            with transaction.atomic():  # rolls back the row and its job
                with connection.cursor() as cursor:
                    cursor.execute("insert into products values (2, 'never sold')")
                ev.add("product", "never sold", id=2, conn=connection)
                raise LookupError("the customer changed his mind")
        except LookupError:
            pass

        ev.process_all()
        print([hit.id for hit in ev.search("bicycle")])
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
