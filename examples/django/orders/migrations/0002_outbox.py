from pathlib import Path

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False  # outbox.sql contains its own transactions
    dependencies = [("orders", "0001_initial")]
    operations = [migrations.RunSQL(Path(__file__).with_name("outbox.sql").read_text())]
