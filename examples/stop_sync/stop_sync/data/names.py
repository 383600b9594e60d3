"""Names by rules: they sound like the region they are in, and nobody has to live there."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Region(NamedTuple):
    """A rectangle well inside the country."""

    language: str
    south: float
    north: float
    west: float
    east: float


REGIONS = (
    Region("de", 46.98, 47.44, 7.35, 8.75),
    Region("de", 47.20, 47.52, 8.75, 9.35),
    Region("de", 46.62, 46.96, 7.40, 8.10),
    Region("de", 46.62, 46.94, 9.35, 9.85),
    Region("fr", 46.48, 46.92, 6.55, 7.10),
    Region("fr", 46.10, 46.28, 7.10, 7.50),
    Region("it", 46.12, 46.44, 8.70, 8.98),
)

LANGUAGES = ("de", "fr", "it")
_BEGINNINGS = {
    "de": """
        Affol Alt Bett Birk Bonn Bram Diet Dorn Eber Eichen Erl Ess Fisch Gerl Gold Grafen Grün Hasel Heim Hirz Hütt Ipp
        Kalt Krumm Käs Lang Linden Mett Moos Neuen Nieder Ober Otten Rich Rohr Rüti Schaff Schwarz Sieb Stein Tann Thal
        Unter Utz Wald Wetz Wolf Wyd Zell
    """,
    "fr": """
        Aven Bel Bras Cham Cor Cress Dom Essert Fleur Grand Haute Lav Marn Mont Neu Orb Pell Roch Saint-Aub Sav Vau Vern
        Vill
    """,
    "it": "Arb Bell Camp Cor Gord Lod Mass Mont Nov Per Rov Son Tav Ver",
}
_ENDINGS = {
    "de": """
        acher bach berg brunn buech bühl dorf egg feld graben hausen heim hof holz ikon ingen matt ried schwand tal wil
    """,
    "fr": "aix amont ans ens eret ettaz ey ier igny ollens onnaz oz y",
    "it": "agno ano ara asca asco ate edo engo era ezzo igo ino ogno",
}
_PLACES = {
    "de": ("Bahnhof", "Dorf", "Kirche", "Post", "Schulhaus", "Mühle", "Gemeindehaus", "Sonnenrain", "Spital"),
    "fr": ("gare", "village", "église", "poste", "école", "moulin", "hôtel de ville", "les Crêts", "hôpital"),
    "it": ("Stazione", "Paese", "Chiesa", "Posta", "Scuole", "Mulino", "Municipio", "Al Sole", "Ospedale"),
}
OPERATORS = (
    ("SBB", "Schweizerische Bundesbahnen SBB"),
    ("RBM", "Regiobus Moosland AG"),
    ("VBT", "Verkehrsbetriebe Tannegg"),
    ("TPV", "Transports publics vernésiens"),
    ("ALS", "Autolinee Sonascesi"),
)


def town_names(random: Random, language: str) -> list[str]:
    """All there are, in any order."""
    names = [begin + end for begin in _BEGINNINGS[language].split() for end in _ENDINGS[language].split()]
    random.shuffle(names)
    return names


def stop_names(random: Random, language: str, count: int) -> list[str]:
    """Of one town, all different."""
    return random.sample(_PLACES[language], count)
