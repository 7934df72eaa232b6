"""Consumes the messages from a queue of RabbitMQ."""
import json
import os

import pika
from sqlalchemy.orm import Session

from shop import engine, invoice


def receive(channel, method, properties, body):
    with Session(engine) as session, session.begin():
        order = json.loads(body)
        invoice(session, properties.message_id, f"order-{order['order']}", order)
    channel.basic_ack(method.delivery_tag)  # after the commit, also for a message that arrived before
    print("received", properties.message_id, flush=True)


channel = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])).channel()
channel.basic_qos(prefetch_count=50)
channel.basic_consume(os.environ["QUEUE"], receive)
channel.start_consuming()
