"""Land three days of hourly files of three sensors. One reading is wrong until --fix; --late lands another hour."""

import argparse
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
DAYS = ("2024-03-29", "2024-03-30", "2024-03-31")
HOURS = (6, 12, 18)
LATE = ("2024-03-29", 15)
WRONG = ("2024-03-30", 12)
WARMTH = {6: 0.0, 12: 5.5, 15: 7.0, 18: 2.5}
SENSORS = {"attic": 14.0, "cellar": 9.0, "garden": 6.0}


def readings(day: str, hour: int) -> list[dict]:
    """Return the readings of a full hour, which the sensors sent a minute later."""
    at, sent = f"{day}T{hour:02}:00:00Z", f"{day}T{hour:02}:01:00Z"
    return [{"sensor": name, "at": at, "celsius": base + WARMTH[hour], "sent": sent} for name, base in SENSORS.items()]


def land(day: str, hour: int, rows: list[dict]) -> None:
    path = HERE / "landing" / day / f"{hour:02}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{path.relative_to(HERE)}: {len(rows)} readings")


def land_all() -> None:
    for day in DAYS:
        for hour in HOURS:
            rows = readings(day, hour)
            if (day, hour) == WRONG:
                rows[-1]["celsius"] = 115.0  # a decimal point was lost
            if (day, hour) == (DAYS[0], HOURS[0]):
                rows.append({**rows[0], "celsius": 14.5, "sent": f"{day}T06:04:00Z"})  # corrected and sent again
            land(day, hour, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    step = parser.add_mutually_exclusive_group()
    step.add_argument("--fix", action="store_true", help="land the corrected reading")
    step.add_argument("--late", action="store_true", help="land an hour of a day that is already done")
    arguments = parser.parse_args()
    if arguments.fix:
        land(*WRONG, readings(*WRONG))
    elif arguments.late:
        land(*LATE, readings(*LATE))
    else:
        land_all()


if __name__ == "__main__":
    main()
