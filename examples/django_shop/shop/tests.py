"""The jobs in virtual time: `manage.py test`. A day takes a moment, and no scheduler is started."""

from datetime import UTC, datetime

from django.test import TestCase
from django_tasks_db.models import DBTaskResult

from fencepost.django.testing import virtual
from fencepost.errors import ConfigurationError
from shop.jobs import count_orders, forget_old_orders, remind
from shop.models import Order, Run
from shop.tasks import send_receipts


class JobTests(TestCase):
    def test_each_customer_is_reminded_once(self) -> None:
        Order.objects.create(customer="ann@example.com")
        with virtual() as time:
            time.advance(seconds=10)
            time.assert_ran(remind, times=5)
        self.assertEqual(Order.objects.exclude(reminded_at=None).count(), 1)
        self.assertEqual(Run.objects.filter(job="remind").count(), 5)

    def test_a_payment_triggers_the_reminders(self) -> None:
        order = Order.objects.create(customer="ann@example.com")
        with virtual() as time:
            key = self.client.get(f"/pay/{order.pk}/").content.decode()
            time.advance(seconds=1)
            self.assertEqual([fire.state for fire in time.fires(remind) if fire.key == key], ["succeeded"])
        with self.assertRaisesMessage(ConfigurationError, "the database of a test is no store"):
            self.client.get(f"/pay/{order.pk}/")

    def test_coroutines_use_the_database_of_the_test(self) -> None:
        Order.objects.create(customer="ann@example.com")
        with virtual() as time:
            time.advance(seconds=3)
            self.assertEqual([fire.state for fire in time.fires(count_orders)], ["succeeded"])
        self.assertEqual(Run.objects.filter(job="count_orders").count(), 1)

    def test_three_in_the_morning_is_by_the_zone_of_the_project(self) -> None:
        with virtual(start=datetime(2026, 7, 1, 0, 59, 30, tzinfo=UTC)) as time:
            time.advance_to(datetime(2026, 7, 1, 1, 0, tzinfo=UTC))
            time.assert_ran(forget_old_orders, at=datetime(2026, 7, 1, 1, 0, tzinfo=UTC))

    def test_a_fire_enqueues_its_task(self) -> None:
        with virtual() as time:
            time.advance(seconds=4)
            keys = [fire.key for fire in time.fires(send_receipts)]
        enqueued = DBTaskResult.objects.order_by("enqueued_at")
        self.assertEqual([result.args_kwargs["kwargs"]["fire_key"] for result in enqueued], keys)
