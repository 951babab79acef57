"""Hands on: one instrument for each page, and the guess before a reveal."""

from mhalesson.widgets.mixing_desk import mixing_desk, trained_desk
from mhalesson.widgets.two_reports_one_sum import two_reports_one_sum
from mhalesson.widgets.who_reaches_whom import who_reaches_whom

__all__ = ["mixing_desk", "trained_desk", "two_reports_one_sum", "who_reaches_whom"]
