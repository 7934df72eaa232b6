from django.db import models


class Order(models.Model):
    total = models.BigIntegerField()


class Headers(models.JSONField):
    """The outbox's column is json on PostgreSQL, which psycopg decodes, and not jsonb, which Django does."""
    def from_db_value(self, value, *more):
        return value if isinstance(value, dict) else super().from_db_value(value, *more)


class Message(models.Model):
    """A row of the outbox, with the columns that this application writes: the database
    fills in the others. A relay takes the row away once it has delivered the message."""
    topic = models.TextField()
    message_key = models.TextField(null=True)
    payload_text = models.TextField(null=True)
    headers = Headers(null=True)

    class Meta:
        db_table, managed = "outbox", False


class Received(models.Model):
    """The ids of the messages that had their effect here."""
    message_id = models.CharField(primary_key=True, max_length=255)
    received_at = models.DateTimeField(auto_now_add=True, db_index=True)


class Invoice(models.Model):
    order_key = models.CharField(max_length=255)
    total = models.BigIntegerField()
