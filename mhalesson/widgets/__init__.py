"""Hands on: one instrument for each page, and the guess before a reveal."""

from mhalesson.widgets.guess import Guess
from mhalesson.widgets.mixing_desk import mixing_desk, trained_desk
from mhalesson.widgets.step_through import step_through
from mhalesson.widgets.two_reports_one_sum import two_reports_one_sum
from mhalesson.widgets.where_the_loop_hurts import where_the_loop_hurts
from mhalesson.widgets.who_reaches_whom import who_reaches_whom

__all__ = [
    "Guess",
    "mixing_desk",
    "step_through",
    "trained_desk",
    "two_reports_one_sum",
    "where_the_loop_hurts",
    "who_reaches_whom",
]
