"""orders and invoices"""
from alembic import op
import sqlalchemy as sa

revision = "0001"
down_revision = None


def upgrade():
    op.create_table("orders", sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("total", sa.BigInteger, nullable=False))
    op.create_table("invoices", sa.Column("order_key", sa.Text, primary_key=True), sa.Column("total", sa.BigInteger, nullable=False))


def downgrade():
    op.drop_table("invoices")
    op.drop_table("orders")
