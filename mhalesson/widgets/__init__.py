"""Hands on: one instrument for each page, and the guess before a reveal."""

from mhalesson.widgets.who_reaches_whom import who_reaches_whom

__all__ = ["who_reaches_whom"]
