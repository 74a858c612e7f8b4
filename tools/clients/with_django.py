"""Django: `migrate` with its own applications, models, the pages of the admin, `inspectdb`."""

import contextlib
import datetime
import decimal
import io
import os
import pathlib
import sys

from checks import Checks, equal

check = Checks()
place = pathlib.Path.cwd()
(place / "shop").mkdir(exist_ok=True)
(place / "shop/__init__.py").touch()
(place / "shop/models.py").write_text('''
import uuid

from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=80, unique=True)
    born = models.DateField(null=True)
    is_alive = models.BooleanField(default=True)

    def __str__(self):
        return self.name


class Book(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    title = models.CharField(max_length=200, db_index=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    pages = models.PositiveIntegerField()
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    tags = models.ManyToManyField("Tag")
    added = models.DateTimeField(auto_now_add=True)
    lent = models.DurationField(null=True)
    notes = models.JSONField(default=dict)
    cover = models.BinaryField(null=True)
    rating = models.FloatField(null=True)
    opens = models.TimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["title", "author"], name="one_title"),
            models.CheckConstraint(condition=models.Q(price__gte=0), name="no_negative_price"),
        ]
        indexes = [models.Index(fields=["author", "-added"])]


class Tag(models.Model):
    name = models.SlugField(unique=True)
''')
(place / "shop/admin.py").write_text('''
from django.contrib import admin

from .models import Author, Book, Tag

admin.site.register([Tag])


@admin.register(Author)
class AuthorAdmin(admin.ModelAdmin):
    list_display = ["name", "born", "is_alive"]
    list_filter = ["is_alive"]
    search_fields = ["name"]


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "author", "price"]
    list_filter = ["author", "added"]
    date_hierarchy = "added"
    list_select_related = ["author"]
''')
(place / "urls.py").write_text('''
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
''')
sys.path.insert(0, str(place))

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="for a test",
    DEBUG=True,
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="urls",
    USE_TZ=True,
    STATIC_URL="static/",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
        }
    },
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "shop",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
)
django.setup()

from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction


def command(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        call_command(*arguments)
    return out.getvalue()


@check
def migrations_run(_):
    command("makemigrations", "shop")
    command("migrate", "--verbosity", "1")
    equal(command("makemigrations", "--check", "--dry-run").strip(), "No changes detected")


@check
def a_second_migration(_):
    path = place / "shop/models.py"
    path.write_text(
        path.read_text()
        .replace("is_alive = models", "country = models.CharField(max_length=2, default='no')\n    is_alive = models")
        .replace("max_length=200, db_index=True", "max_length=250, db_index=True")
    )
    import subprocess

    for arguments in (["makemigrations", "shop"], ["migrate"]):
        text = f"""
import runpy, sys
sys.argv = ["x"]
import django.core.management as m
from django.conf import settings
settings.configure(**{ {name: getattr(settings, name) for name in ("DATABASES", "INSTALLED_APPS", "DEFAULT_AUTO_FIELD", "USE_TZ", "SECRET_KEY", "MIDDLEWARE", "TEMPLATES", "ROOT_URLCONF")}!r})
import django
django.setup()
m.call_command(*{arguments!r})
"""
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=place)
        assert run.returncode == 0, run.stderr[-600:]


def shop():
    from shop.models import Author, Book, Tag

    return Author, Book, Tag


def fill():
    Author, Book, Tag = shop()
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from shop_author")
        if cursor.fetchone()[0]:
            return
        # The column of the second migration has no default in the database.
        cursor.execute("alter table shop_author alter column country set default 'no'")
    tags = [Tag.objects.create(name=f"tag{number}") for number in range(3)]
    for number in range(20):
        author = Author.objects.create(name=f"Author {number}", born=datetime.date(1950 + number, 1, 1))
        for other in range(3):
            book = Book.objects.create(
                title=f"Book {other}",
                price=decimal.Decimal("9.99") + other,
                pages=100 * (other + 1),
                author=author,
                lent=datetime.timedelta(days=other),
                notes={"edition": other, "words": ["a", "b"]},
                cover=b"\0\1",
                rating=other / 2,
                opens=datetime.time(9, 30),
            )
            book.tags.set(tags[: other + 1])


@check
def rows_are_kept(_):
    fill()
    Author, Book, Tag = shop()
    book = Book.objects.select_related("author").get(author__name="Author 3", title="Book 2")
    equal((book.price, book.lent, book.notes["edition"]), (decimal.Decimal("11.99"), datetime.timedelta(days=2), 2))
    equal((bytes(book.cover), book.rating, book.opens), (b"\0\1", 1.0, datetime.time(9, 30)))
    equal(Author.objects.filter(books__pages__gt=250).distinct().count(), 20)


@check
def queries(_):
    fill()
    Author, Book, Tag = shop()
    by_author = Author.objects.annotate(count=models.Count("books"), total=models.Sum("books__price")).order_by("id")
    equal((by_author[0].count, by_author[0].total), (3, decimal.Decimal("32.97")))
    equal(Book.objects.aggregate(models.Avg("pages"))["pages__avg"], 200.0)
    equal(len(Author.objects.filter(name__icontains="author 1")), 11)
    equal(Author.objects.filter(born__year__gte=1965).count(), 5)
    equal(Book.objects.filter(notes__edition=1).count(), 20)
    equal(Book.objects.filter(notes__has_key="words").count(), 60)
    equal(Tag.objects.filter(book__author__name="Author 0").distinct().count(), 3)
    newest = Book.objects.filter(author=models.OuterRef("pk")).order_by("-title").values("title")[:1]
    equal(Author.objects.annotate(last=models.Subquery(newest)).first().last, "Book 2")
    equal(Author.objects.exclude(models.Exists(Book.objects.filter(author=models.OuterRef("pk"), pages=300))).count(), 0)
    equal([one.year for one in Author.objects.dates("born", "year")[:2]], [1950, 1951])
    equal(Book.objects.filter(added__date=datetime.datetime.now(datetime.timezone.utc).date()).count(), 60)
    Book.objects.filter(pages=300).update(price=models.F("price") * 2)
    equal(Book.objects.filter(price__gt=20).count(), 20)
    union = Author.objects.filter(id__lt=3).values("name").union(Tag.objects.values("name"))
    equal(len(union), 5)
    Author.objects.bulk_create([Author(name="x1"), Author(name="x2")])
    Author.objects.bulk_create([Author(name="x1", born=datetime.date(2000, 1, 1))], update_conflicts=True, unique_fields=["name"], update_fields=["born"])
    equal(Author.objects.get(name="x1").born, datetime.date(2000, 1, 1))
    equal(Author.objects.filter(name__in=["x1", "x2"]).delete()[0], 2)
    equal(Author.objects.get_or_create(name="Author 0")[1], False)
    list(Author.objects.select_for_update().filter(id=1)) if transaction.get_connection().in_atomic_block else None
    equal(len(list(Book.objects.iterator(chunk_size=7))), 60)


@check
def transactions(_):
    fill()
    Author, Book, Tag = shop()
    with transaction.atomic():
        try:
            with transaction.atomic():
                Author.objects.create(name="Author 0")
        except IntegrityError:
            pass
        equal(Author.objects.select_for_update().get(name="Author 0").name, "Author 0")
        Tag.objects.create(name="made")
    equal(Tag.objects.filter(name="made").delete()[0], 1)
    try:
        with transaction.atomic():
            Book.objects.create(title="x", price=-1, pages=1, author=Author.objects.first())
        raise AssertionError("a negative price is taken")
    except IntegrityError as error:
        assert "no_negative_price" in str(error)


@check
def the_admin(_):
    fill()
    from django.contrib.auth.models import User
    from django.test import Client

    User.objects.create_superuser("admin", "a@x", "secret")
    client = Client()
    assert client.login(username="admin", password="secret")
    Author, Book, _ = shop()
    book = Book.objects.first()
    pages = [
        "", "shop/", "shop/author/", "shop/author/?q=Author+1", "shop/author/?is_alive__exact=1&o=-2", "shop/book/",
        f"shop/book/?author__id__exact={book.author_id}", "shop/book/?added__year=2024", "shop/tag/add/",
        f"shop/book/{book.pk}/change/", f"shop/author/{book.author_id}/delete/", "auth/user/", "auth/group/add/",
        f"shop/author/{book.author_id}/history/",
    ]
    for page in pages:
        answer = client.get(f"/admin/{page}")
        assert answer.status_code == 200, f"{page}: {answer.status_code}"
    answer = client.post("/admin/shop/tag/add/", {"name": "new"})
    equal(answer.status_code, 302)
    author = Author.objects.create(name="gone")
    equal(client.post(f"/admin/shop/author/{author.pk}/delete/", {"post": "yes"}).status_code, 302)


@check
def the_schema_is_inspected(_):
    text = command("inspectdb")
    for part in ("class ShopBook(models.Model)", "models.DecimalField(max_digits=8, decimal_places=2)",
                 "models.ForeignKey(ShopAuthor", "models.UUIDField(primary_key=True)", "models.JSONField()",
                 "models.DurationField(blank=True, null=True)", "unique_together = (('title', 'author'),)",
                 "models.CharField(unique=True, max_length=80)", "models.BigAutoField(primary_key=True)"):
        assert part in text, f"inspectdb has no {part!r}"


@check
def data_is_dumped_and_loaded(_):
    text = command("dumpdata", "shop")
    path = place / "dump.json"
    path.write_text(text)
    command("flush", "--no-input")
    command("loaddata", str(path))
    equal(shop()[1].objects.count(), 60)


check.run(None, before=lambda: connection.close())
