"""Writes messages to rowrelay's outbox, and recognises messages that arrive again."""
import json

from sqlalchemy import JSON, Column, MetaData, Table, Text, insert, text

# The columns that this application writes. The database sets the others. The table has a MetaData
# of its own, so that Alembic doesn't treat it as one of the application's tables.
outbox = Table(
    "outbox", MetaData(schema="rowrelay"),
    Column("topic", Text), Column("message_key", Text), Column("payload_text", Text), Column("headers", JSON),
)


def send(session, topic, key, payload):
    """Writes a message in the session's transaction. It is delivered if the transaction commits."""
    session.execute(insert(outbox).values(
        topic=topic, message_key=key, payload_text=json.dumps(payload),
        headers={"content-type": "application/json"},
    ))


RECEIVE = text("""
    INSERT INTO rowrelay.inbox (consumer, message_id)
    VALUES (:consumer, :message_id)
    ON CONFLICT DO NOTHING
""")


def is_first(session, consumer, message_id):
    """Returns whether the consumer receives the message for the first time. Call it in the
    transaction of the message's effect."""
    return session.execute(RECEIVE, {"consumer": consumer, "message_id": message_id}).rowcount == 1
