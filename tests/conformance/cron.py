"""Slots of `ken-scheduler preview` against those of cronsim and croniter, over random expressions in ten zones.

usage: cron.py KEN_SCHEDULER [NUMBER]

Each expression is followed from shortly before a change of the clock. Where the three differ, the difference has to be one of
the rules that ken-schedule(5) names; anything else is printed, and the exit status is 1.
"""

import json
import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

ZONES = [
    "UTC", "Europe/Zurich", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata",
    "Pacific/Auckland", "America/Havana", "Asia/Beirut",
]
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()
SLOTS = 12


def field(chance, low, high, names=()):
    """A random field: `*`, steps, ranges, lists, names."""

    def item():
        kind = chance.random()
        a, b = sorted(chance.sample(range(low, high + 1), 2))
        if kind < 0.15:
            return f"*/{chance.randint(2, max(2, (high - low) // 2))}"
        if kind < 0.35:
            return f"{a}-{b}"
        if kind < 0.45:
            return f"{a}-{b}/{chance.randint(1, 5)}"
        if names and kind < 0.65:
            return chance.choice(names)
        return str(chance.randint(low, high))

    if chance.random() < 0.35:
        return "*"
    return ",".join(item() for _ in range(chance.choice([1, 1, 1, 2, 3])))


def expression(chance):
    return " ".join([
        field(chance, 0, 59),
        field(chance, 0, 23),
        field(chance, 1, 28) if chance.random() < 0.5 else "*",
        field(chance, 1, 12, MONTHS) if chance.random() < 0.3 else "*",
        field(chance, 0, 6, DAYS) if chance.random() < 0.5 else "*",
    ])


def changes(zone):
    """Instants of 2027 and 2028 at which the clock of a zone is changed."""
    found = []
    hour = datetime(2027, 1, 1, tzinfo=timezone.utc)
    while hour.year < 2029:
        after = hour + timedelta(hours=1)
        if hour.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            found.append(after)
        hour = after
    return found or [datetime(2027, 6, 1, tzinfo=timezone.utc)]


def own(program, text, zone, start):
    command = [program, "preview", "--format", "compact", "--number", str(SLOTS), "--tz", zone.key,
               "--after", start.isoformat().replace("+00:00", "Z"), "--", text]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None
    return [slot["at"] // 1000 for slot in json.loads(done.stdout)["slots"]]


def of_cronsim(text, zone, start):
    slots = CronSim(text, start.astimezone(zone))
    return [int(next(slots).timestamp()) for _ in range(SLOTS)]


def of_croniter(text, zone, start):
    slots = croniter(text, start.astimezone(zone))
    return [int(slots.get_next(float)) for _ in range(SLOTS)]


def is_near_change(slot, zone):
    """Whether the clock is changed within a day of an instant."""
    at = datetime.fromtimestamp(slot, timezone.utc)
    offsets = {(at + timedelta(hours=hours)).astimezone(zone).utcoffset() for hours in range(-26, 27)}
    return len(offsets) > 1


def explained(text, zone, mine, theirs):
    """Which rule of ken-schedule(5) a difference comes from."""
    _, _, day, _, weekday = text.split()
    if day != "*" and weekday != "*" and "*" in (day[0], weekday[0]):
        return "with a step over * in a day field, others take both day fields together; here either fits"
    different = set(mine) ^ set(theirs)
    shared = min(mine[-1], theirs[-1])
    different = {slot for slot in different if slot <= shared}
    if all(is_near_change(slot, zone) for slot in different):
        return "at a change of the clock: a fixed hour fires once, and times in the gap after it"
    return None


def main():
    program = sys.argv[1]
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 5_000
    chance = random.Random(20270328)
    zones = [ZoneInfo(name) for name in ZONES]
    starts = {zone.key: changes(zone) for zone in zones}
    equal = {"cronsim": 0, "croniter": 0}
    reasons, failures = {}, 0
    for count in range(number):
        zone = zones[count % len(zones)]
        text = expression(chance)
        start = chance.choice(starts[zone.key]) - timedelta(minutes=chance.randint(30, 2_000))
        mine = own(program, text, zone, start)
        for name, library in (("cronsim", of_cronsim), ("croniter", of_croniter)):
            try:
                theirs = library(text, zone, start)
            except Exception as error:  # an expression that the library refuses
                reason = f"refused: {type(error).__name__}"
                theirs = None
            if theirs is not None and theirs == mine:
                equal[name] += 1
                continue
            if theirs is not None and mine is not None:
                reason = explained(text, zone, mine, theirs)
            elif theirs is not None:
                reason = None
            if reason is None:
                failures += 1
                print(f"{name} differs: {text!r} in {zone.key} after {start}\n  ken    {mine}\n  {name} {theirs}")
            else:
                reasons[name, reason] = reasons.get((name, reason), 0) + 1
    print(f"{number} expressions; equal: {equal}")
    for (name, reason), times in sorted(reasons.items()):
        print(f"  {name}: {times} {reason}")
    return 1 if failures else 0


sys.exit(main())
