"""Times of batches, and tables cut into periods."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import TABLES, read_columns
from pseudocal.arrays import InputError
from pseudocal.files import brief

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
EVERY = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
MONDAY = datetime(1970, 1, 5, tzinfo=UTC)  # weeks begin on it


def parse_time(text: str) -> datetime:
    """A date, or a date and a time, in ISO 8601; UTC unless it says otherwise.

    >>> parse_time("2026-11-17").isoformat(), parse_time("2026-11-17T08:00+02:00").isoformat()
    ('2026-11-17T00:00:00+00:00', '2026-11-17T06:00:00+00:00')
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{brief(text)} is not a time like 2026-11-17 or 2026-11-17T08:00", setting="time"
        ) from None
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time.astimezone(UTC)


def format_time(time: datetime) -> str:
    """A time as the history has it.

    >>> format_time(parse_time("2026-11-17")), format_time(parse_time("2026-11-17T08:00"))
    ('2026-11-17', '2026-11-17T08:00:00')
    """
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    return text.removesuffix("T00:00:00")


def parse_every(text: str) -> timedelta:
    """The length of a period.

    >>> parse_every("1d"), parse_every("30m")
    (datetime.timedelta(days=1), datetime.timedelta(seconds=1800))
    """
    match = EVERY.fullmatch(text)
    if match is None:
        raise InputError(f"{brief(text)} is not a period like 30m, 6h, 1d or 1w", setting="every")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def period_starts(times: NDArray[Any], every: timedelta) -> NDArray[Any]:
    """The start of the period of each time.

    >>> times = np.array(["2026-11-17T08:00", "2026-11-18T09:30"], dtype="datetime64[us]")
    >>> period_starts(times, parse_every("1d")).astype(str).tolist()
    ['2026-11-17T00:00:00.000000', '2026-11-18T00:00:00.000000']
    >>> period_starts(times, parse_every("1w")).astype("datetime64[D]").astype(str).tolist()
    ['2026-11-16', '2026-11-16']
    """
    step = np.timedelta64(every, "us")
    anchor = np.datetime64(MONDAY.replace(tzinfo=None), "us")
    starts: NDArray[Any] = anchor + (times - anchor) // step * step
    return starts


def times_in(path: Path, column: str) -> NDArray[Any]:
    """The time of each row of a table.

    Args:
        path: a .csv or .parquet file.
        column: a column of dates and times, of texts in ISO 8601, or of Unix seconds.

    """
    if path.suffix.lower() not in TABLES:
        raise InputError(f"only a .csv or .parquet table has a column of times, not {path}")
    columns = read_columns(path)
    if column not in columns:
        raise InputError(
            f"{path} has no column {brief(column)}, only {', '.join(columns)}", setting="column"
        )
    values = columns[column]
    if values.dtype.kind == "M":
        times = values.astype("datetime64[us]")
    elif values.dtype.kind in "iuf":
        bad = ~np.isfinite(values.astype(np.float64))
        times = (np.where(bad, 0, values) * 1e6).astype("int64").astype("datetime64[us]")
        times[bad] = np.datetime64("NaT")
    else:
        times = np.array([_time_of(value) for value in values], dtype="datetime64[us]")
    missing = np.flatnonzero(np.isnat(times))
    if len(missing):
        row = int(missing[0])
        raise InputError(
            f"row {row} of {path} has no time in column {brief(column)}: {brief(values[row])}"
        )
    return times


def _time_of(value: Any) -> Any:
    try:
        return np.datetime64(parse_time(str(value).strip()).replace(tzinfo=None), "us")
    except InputError:
        return np.datetime64("NaT")
