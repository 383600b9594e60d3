"""No table: the permissions."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Scheduler",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                )
            ],
            options={
                "managed": False,
                "default_permissions": (),
                "permissions": (
                    ("view", "Can see jobs and fires"),
                    ("operate", "Can trigger, retry, cancel, pause and resume"),
                    ("admin", "Can define and remove jobs"),
                ),
            },
        )
    ]
