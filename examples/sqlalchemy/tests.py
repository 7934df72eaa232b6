import json
import unittest

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from outbox import outbox
from shop import Invoice, Order, engine, invoice, take


class Tests(unittest.TestCase):
    """Each test runs in a transaction that is rolled back."""

    def setUp(self):
        connection = self.enterContext(engine.connect())
        self.addCleanup(connection.begin().rollback)
        self.session = self.enterContext(Session(connection, join_transaction_mode="create_savepoint"))

    def test_an_order_has_its_message(self):
        order = take(self.session, total=7)
        self.session.commit()
        message = self.session.execute(select(outbox)).one()
        self.assertEqual((message.topic, message.message_key), ("orders.taken", f"order-{order.id}"))
        self.assertEqual(json.loads(message.payload_text), {"order": order.id, "total": 7})

    def test_no_order_no_message(self):
        take(self.session, total=7)
        self.session.rollback()
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Order)), 0)
        self.assertEqual(self.session.scalar(select(func.count()).select_from(outbox)), 0)

    def test_a_duplicate_has_no_second_effect(self):
        for message_id, key in [("a", "order-1"), ("a", "order-1"), ("b", "order-2")]:
            invoice(self.session, message_id, key, {"total": 7})
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Invoice)), 2)


if __name__ == "__main__":
    unittest.main()
