"""Requests become rows: a person may ask for more than a stop. Evaluations get their scope."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def keep_stop_requests(apps, schema_editor):
    runs = apps.get_model("runs", "Run")
    requests = apps.get_model("runs", "RunRequest")
    for run in runs.objects.exclude(stop_requested_by="").iterator():
        requests.objects.create(run=run, number=1, action="stop", by=run.stop_requested_by)


def restore_stop_requests(apps, schema_editor):
    runs = apps.get_model("runs", "Run")
    requests = apps.get_model("runs", "RunRequest")
    for request in requests.objects.filter(action="stop"):
        runs.objects.filter(pk=request.run_id).update(stop_requested_by=request.by)


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_events_by_type")]

    operations = [
        migrations.CreateModel(
            name="RunRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("action", models.CharField(max_length=16)),
                ("by", models.CharField(max_length=150)),
                ("text", models.TextField(blank=True, default="")),
                ("budgets_text", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="requests",
                        to="runs.run",
                    ),
                ),
            ],
            options={"ordering": ["number"]},
        ),
        migrations.AddConstraint(
            model_name="runrequest",
            constraint=models.UniqueConstraint(
                fields=("run", "number"), name="one_request_per_number"
            ),
        ),
        migrations.RunPython(keep_stop_requests, restore_stop_requests),
        migrations.RemoveField(model_name="run", name="stop_requested_by"),
        migrations.AddField(
            model_name="run",
            name="requests_taken",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.RemoveConstraint(model_name="job", name="one_job_per_candidate"),
        migrations.AddField(
            model_name="job",
            name="scope",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                fields=("run", "number", "scope"), name="one_job_per_scope"
            ),
        ),
    ]
