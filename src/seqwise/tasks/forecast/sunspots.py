"""`builtin:sunspots`: the yearly mean sunspot number, 1700–2008, as the table it would be in a file.

The numbers are facts of observation: the international sunspot number, version 1, of the World Data Center SILSO at the
Royal Observatory of Belgium, Brussels. One cycle lasts about eleven years, now ten, now twelve, and no two are equally
high. It knows nothing of splits or models.
"""

from __future__ import annotations

YEARS = """
1700: 5 11 16 23 36 58 29 20 10 8
1710: 3 0 0 2 11 27 47 63 60 39
1720: 28 26 22 11 21 40 78 122 103 73
1730: 47 35 11 5 16 34 70 81 111 101
1740: 73 40 20 16 5 11 22 40 60 80.9
1750: 83.4 47.7 47.8 30.7 12.2 9.6 10.2 32.4 47.6 54
1760: 62.9 85.9 61.2 45.1 36.4 20.9 11.4 37.8 69.8 106.1
1770: 100.8 81.6 66.5 34.8 30.6 7 19.8 92.5 154.4 125.9
1780: 84.8 68.1 38.5 22.8 10.2 24.1 82.9 132 130.9 118.1
1790: 89.9 66.6 60 46.9 41 21.3 16 6.4 4.1 6.8
1800: 14.5 34 45 43.1 47.5 42.2 28.1 10.1 8.1 2.5
1810: 0 1.4 5 12.2 13.9 35.4 45.8 41.1 30.1 23.9
1820: 15.6 6.6 4 1.8 8.5 16.6 36.3 49.6 64.2 67
1830: 70.9 47.8 27.5 8.5 13.2 56.9 121.5 138.3 103.2 85.7
1840: 64.6 36.7 24.2 10.7 15 40.1 61.5 98.5 124.7 96.3
1850: 66.6 64.5 54.1 39 20.6 6.7 4.3 22.7 54.8 93.8
1860: 95.8 77.2 59.1 44 47 30.5 16.3 7.3 37.6 74
1870: 139 111.2 101.6 66.2 44.7 17 11.3 12.4 3.4 6
1880: 32.3 54.3 59.7 63.7 63.5 52.2 25.4 13.1 6.8 6.3
1890: 7.1 35.6 73 85.1 78 64 41.8 26.2 26.7 12.1
1900: 9.5 2.7 5 24.4 42 63.5 53.8 62 48.5 43.9
1910: 18.6 5.7 3.6 1.4 9.6 47.4 57.1 103.9 80.6 63.6
1920: 37.6 26.1 14.2 5.8 16.7 44.3 63.9 69 77.8 64.9
1930: 35.7 21.2 11.1 5.7 8.7 36.1 79.7 114.4 109.6 88.8
1940: 67.8 47.5 30.6 16.3 9.6 33.2 92.6 151.6 136.3 134.7
1950: 83.9 69.4 31.5 13.9 4.4 38 141.7 190.2 184.8 159
1960: 112.3 53.9 37.6 27.9 10.2 15.1 47 93.8 105.9 105.5
1970: 104.5 66.6 68.9 38 34.5 15.5 12.6 27.5 92.5 155.4
1980: 154.6 140.4 115.9 66.6 45.9 17.9 13.4 29.4 100.2 157.6
1990: 142.6 145.7 94.3 54.6 29.9 17.5 8.6 21.5 64.3 93.3
2000: 119.6 111 104 63.7 40.4 29.8 15.2 7.5 2.9
"""


def numbers() -> dict[int, float]:
    """Year → mean number of sunspots."""
    found: dict[int, float] = {}
    for line in YEARS.strip().splitlines():
        first, _, values = line.partition(": ")
        found |= {int(first) + at: float(value) for at, value in enumerate(values.split())}
    return found


def table() -> str:
    """The same as the text of a CSV file."""
    return "year,sunspots\n" + "".join(f"{year},{value:g}\n" for year, value in numbers().items())
