import os

from sqlalchemy import BigInteger, Text, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox import is_first, send

url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")  # rowrelay's URL begins with postgres://
engine = create_engine(url)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    total: Mapped[int] = mapped_column(BigInteger)


class Invoice(Base):
    __tablename__ = "invoices"
    order_key: Mapped[str] = mapped_column(Text, primary_key=True)
    total: Mapped[int] = mapped_column(BigInteger)


def take(session, total):
    """Takes an order and announces it."""
    order = Order(total=total)
    session.add(order)
    session.flush()  # the database sets the order's id
    send(session, "orders.taken", f"order-{order.id}", {"order": order.id, "total": total})
    return order


def invoice(session, message_id, order_key, order):
    """Writes the invoice of an order, unless the message arrived before."""
    if is_first(session, "billing", message_id):
        session.add(Invoice(order_key=order_key, total=order["total"]))


if __name__ == "__main__":
    with Session(engine) as session, session.begin():
        take(session, total=7)
