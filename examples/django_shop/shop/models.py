from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    paid = models.BooleanField(default=False)
    reminded_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Run(models.Model):
    """One row by every run of a job: what the tests count."""

    job = models.CharField(max_length=200)
    fire_key = models.CharField(max_length=300)
    code = models.CharField(max_length=20, default="")
    pid = models.IntegerField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.fire_key
