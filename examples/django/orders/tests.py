import json
from datetime import datetime, timezone

from django.conf import settings
from django.db import transaction
from django.test import TestCase
from standardwebhooks import Webhook

from .models import Invoice, Message, Order


class Writing(TestCase):
    def test_an_order_has_its_message(self):
        answer = self.client.post("/orders", {"Total": 7}, content_type="application/json")
        self.assertEqual(answer.status_code, 201)
        message = Message.objects.get()
        self.assertEqual(message.topic, "orders.taken")
        self.assertEqual(message.headers, {"content-type": "application/json"})
        self.assertEqual(json.loads(message.payload_text), {"order": Order.objects.get().pk, "total": 7})

    def test_no_order_no_message(self):
        with self.assertRaises(RuntimeError), transaction.atomic():
            Message.objects.create(topic="orders.taken")
            raise RuntimeError
        self.assertFalse(Message.objects.exists())


class Receiving(TestCase):
    def deliver(self, message_id, secret=settings.SIGNING_SECRET):
        body, now = json.dumps({"order": 42, "total": 7}), datetime.now(timezone.utc)
        return self.client.post("/messages", body, content_type="application/json", headers={
            "Webhook-Id": message_id, "Webhook-Timestamp": str(int(now.timestamp())),
            "Webhook-Signature": Webhook(secret).sign(message_id, now, body), "Rowrelay-Key": "order-42",
        }).status_code

    def test_a_duplicate_has_no_second_effect(self):
        self.assertEqual([self.deliver("a"), self.deliver("a"), self.deliver("b")], [204, 204, 204])
        self.assertEqual(Invoice.objects.count(), 2)

    def test_who_does_not_know_the_secret_is_refused(self):
        self.assertEqual(self.deliver("a", "whsec_c29tZWJvZHkgZWxzZSdzIHNlY3JldA=="), 401)
        self.assertFalse(Invoice.objects.exists())
