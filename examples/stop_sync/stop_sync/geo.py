"""Distances in metres, and who is near."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from scipy.spatial import cKDTree

EARTH_RADIUS_M = 6_371_008.8
METRES_PER_DEGREE = math.radians(1) * EARTH_RADIUS_M
"""Of latitude."""

Point = tuple[float, float, float]
"""On the globe, in metres from its centre. Straight lines between such points need no map projection, and over a
kilometre they are shorter than the arc by less than a thousandth of a millimetre."""


def point(latitude: float, longitude: float) -> Point:
    phi, theta = math.radians(latitude), math.radians(longitude)
    return (
        EARTH_RADIUS_M * math.cos(phi) * math.cos(theta),
        EARTH_RADIUS_M * math.cos(phi) * math.sin(theta),
        EARTH_RADIUS_M * math.sin(phi),
    )


def distance_m(one: Point, other: Point) -> float:
    return math.dist(one, other)


class Neighbours:
    """Answers who of many is near. Built once, asked for all at once."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._tree = cKDTree(_array(points))

    def within(self, metres: float, of: Sequence[Point]) -> list[list[int]]:
        """For each of these points the places, in the given sequence, of those so near. In order."""
        if not of:
            return []
        found = self._tree.query_ball_point(_array(of), metres, return_sorted=True)
        return [list(each) for each in found]

    def nearest_m(self, of: Sequence[Point]) -> list[float]:
        """For each of these points how far away the nearest one is; infinite: there is none."""
        if not of:
            return []
        distances, _ = self._tree.query(_array(of))
        return [float(each) for each in distances]


def _array(points: Sequence[Point]) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]:
    return numpy.asarray(points, dtype=numpy.float64).reshape(-1, 3)
