"""Filters for numbers that only the review pages show."""

from __future__ import annotations

from django import template

from runner import units

register = template.Library()

register.filter("significant", units.significant)


@register.filter
def percent(share: float) -> str:
    """A part of a whole, as `38%`, `4.1%` or `142%`."""
    value = 100 * share
    return f"{value:.0f}%" if value >= 9.5 else f"{value:.1f}%"
