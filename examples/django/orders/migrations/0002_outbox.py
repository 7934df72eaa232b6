from pathlib import Path

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False  # outbox.sql has transactions of its own
    dependencies = [("orders", "0001_initial")]
    operations = [migrations.RunSQL(Path(__file__).with_name("outbox.sql").read_text())]
