"""A chart of the totals per minute: stored by each job, beside what was sent."""

from collections.abc import Iterator, Mapping
from pathlib import Path

WIDTH, HEIGHT = 1080, 560
LEFT, RIGHT, TOP, BOTTOM = 84, 36, 150, 488
COLOURS = {"plain": "#d1495b", "oncelake": "#2a7f9e"}
NAMES = {"plain": "plain foreachBatch", "oncelake": "oncelake"}
TRUTH, QUIET, LINE = "#1b1f23", "#57606a", "#e4e7eb"
LABELS = 16

# Cents by minute.
Cents = Mapping[str, int]


def draw(path: Path, stored: Mapping[str, Cents], sent: Cents, kills: int) -> None:
    """Write the chart as SVG."""
    step = _step(max(max(each.values(), default=0) for each in (*stored.values(), sent)))
    top = -(-max(max(each.values(), default=0) for each in (*stored.values(), sent)) // step) * step
    scale, width = (BOTTOM - TOP) / top, (WIDTH - LEFT - RIGHT) / len(sent)
    parts = [*_frame(stored, sent, kills), *_grid(scale, top, step)]
    for number, (minute, cents) in enumerate(sent.items()):
        x = LEFT + (number + 0.5) * width
        parts += _minute(x, width, scale, {name: each.get(minute, 0) for name, each in stored.items()}, cents)
        if number % -(-len(sent) // LABELS) == 0:
            parts.append(_text(x, BOTTOM + 22, minute, size=13, fill=QUIET, anchor="middle"))
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def times(kills: int) -> str:
    return "once" if kills == 1 else f"{kills} times"


def _step(most: int) -> int:
    """Return a round distance of grid lines: at most six of them."""
    step = 1
    while most > 6 * step:
        step *= 10
    return next(part for part in (step // 5 or 1, step // 2 or 1, step) if most <= 6 * part)


def _frame(stored: Mapping[str, Cents], sent: Cents, kills: int) -> Iterator[str]:
    total = sum(sent.values())
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img" aria-label="Payments by minute">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(36, 46, "The stream that was killed", size=24, weight="bold")
    what = f"Payments by minute, sent to Kafka and stored in Delta; each job was killed {times(kills)}"
    yield _text(36, 72, what, size=15, fill=QUIET)
    x = 36
    for name, cents in stored.items():
        value = sum(cents.values())
        yield f'<rect x="{x}" y="94" width="14" height="14" rx="2" fill="{COLOURS[name]}"/>'
        yield _text(x + 22, 106, f"{NAMES[name]}: {value / 100:,.2f} ({_difference(value, total)})", size=15)
        x += 380
    yield f'<path d="M{x} 101h22" stroke="{TRUTH}" stroke-width="3"/>'
    yield _text(x + 30, 106, f"sent: {total / 100:,.2f}", size=15)
    yield _text(36, HEIGHT - 18, "Duplicates count once, late payments in their own minute.", size=12, fill=QUIET)


def _grid(scale: float, top: int, step: int) -> Iterator[str]:
    for cents in range(0, top + 1, step):
        y = BOTTOM - cents * scale
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{QUIET if cents == 0 else LINE}"/>'
        yield _text(LEFT - 10, y + 5, f"{cents / 100:,.0f}", size=13, fill=QUIET, anchor="end")


def _minute(x: float, width: float, scale: float, stored: Mapping[str, int], sent: int) -> Iterator[str]:
    bar = 0.8 * width / len(stored)
    for number, (name, cents) in enumerate(stored.items()):
        left, height = x - 0.4 * width + number * bar, cents * scale
        yield f'<rect x="{left:.1f}" y="{BOTTOM - height:.1f}" width="{bar:.1f}" height="{height:.1f}" fill="{COLOURS[name]}"/>'
    y = BOTTOM - sent * scale
    yield f'<path d="M{x - 0.46 * width:.1f} {y:.1f}H{x + 0.46 * width:.1f}" stroke="{TRUTH}" stroke-width="3"/>'


def _difference(value: int, true: int) -> str:
    return "exact" if value == true else f"{(value - true) / true:+.1%}"


def _text(
    x: float, y: float, text: str, *, size: int, fill: str = TRUTH, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{text}</text>'
    )
