from django.db import models


class Order(models.Model):
    total = models.BigIntegerField()


class Headers(models.JSONField):
    """On PostgreSQL the column is json, which psycopg already decodes; Django expects jsonb."""
    def from_db_value(self, value, *more):
        return value if isinstance(value, dict) else super().from_db_value(value, *more)


class Message(models.Model):
    """A row of the outbox with the columns that this application writes. The database
    sets the others. A relay removes the row after it has delivered the message."""
    topic = models.TextField()
    message_key = models.TextField(null=True)
    payload_text = models.TextField(null=True)
    headers = Headers(null=True)

    class Meta:
        db_table, managed = "outbox", False


class Received(models.Model):
    """The ids of the messages that have taken effect here."""
    message_id = models.CharField(primary_key=True, max_length=255)
    received_at = models.DateTimeField(auto_now_add=True, db_index=True)


class Invoice(models.Model):
    order_key = models.CharField(max_length=255)
    total = models.BigIntegerField()
