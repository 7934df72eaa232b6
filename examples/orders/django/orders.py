"""Orders takes orders over HTTP, and writes each with its message by Django's ORM in one
transaction. A relay beside it delivers the messages."""
import json
import os
from urllib.parse import unquote, urlparse
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import IntegrityError, models, transaction
from django.http import HttpResponse
from django.urls import path

url = urlparse(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "HOST": url.hostname,
        "PORT": url.port, "USER": url.username, "PASSWORD": unquote(url.password or ""),
    }},
)
django.setup()


class Order(models.Model):
    id = models.BigIntegerField(primary_key=True)
    total = models.BigIntegerField()

    class Meta:
        app_label, db_table, managed = "shop", "orders", False


class Message(models.Model):
    """A row of the outbox: those of its columns that an application writes. It isn't
    managed, as rowrelay migrate makes the table; message_id is the key for Django only."""
    message_id = models.UUIDField(primary_key=True, db_default=models.Func(function="gen_random_uuid"))
    topic = models.TextField()
    message_key = models.TextField(null=True)
    payload_text = models.TextField(null=True)

    class Meta:
        app_label, db_table, managed = "shop", "outbox", False


def take(request):
    body = json.loads(request.body)
    try:
        with transaction.atomic():
            Message.objects.create(topic="orders.taken", message_key=f"order-{body['ID']}", payload_text=json.dumps(body))
            Order.objects.create(id=body["ID"], total=body["Total"])
    except IntegrityError as error:
        return HttpResponse(str(error), status=409)
    return HttpResponse(status=201)


urlpatterns = [path("orders", take)]

if __name__ == "__main__":
    host, port = os.environ["LISTEN"].rsplit(":", 1)
    server = make_server(host, int(port), get_wsgi_application())
    print(f"http://{host}:{server.server_port}", flush=True)
    server.serve_forever()
