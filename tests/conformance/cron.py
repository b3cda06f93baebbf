"""Compares the slots of `ken-scheduler preview` with those of cronsim and croniter, for random expressions in ten time zones.

usage: cron.py KEN_SCHEDULER [NUMBER]

The slots of each expression begin shortly before a change of the clock. The three programs differ in four rules, which NAMES
lists. This script contains a small calendar with these rules as parameters. With the rules of ken it must compute exactly the
slots of ken, and with those of a library exactly the slots of that library. A difference between ken and a library is explained
by the rules that turn one result of the calendar into the other. Any other difference is printed, and the exit status is 1.
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
    """The instants in 2027 and 2028 at which the clock of a zone changes."""
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


def values(text, low, high, names=()):
    """The set of values that a field matches."""
    found = set()
    for item in text.upper().split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        number = lambda word: names.index(word) + low if word in names else int(word)
        if span == "*":
            first, last = low, high
        else:
            first, last = number(first), number(last or first)
        found.update(range(first, last + 1, int(step or 1)))
    return found


class Rules:
    """The rules in which implementations differ."""

    def __init__(self, days, repeated, gap, search="all"):
        self.days = days  # "and" if a date must match both day fields when both are set, "or" if one is enough
        self.repeated = repeated  # whether a local time that occurs twice has two slots
        self.gap = gap  # whether a local time that does not exist has a slot at the end of the gap
        self.search = search  # how slots are searched: "all", one "hour" after the other, or with only "one" alternative


def rules_of_ken(text):
    """If the hour is `*` or `*/n`, slots follow real time. Any other hour is a time on the clock, which occurs once a day."""
    _, hour, _, _, _ = text.split()
    is_real_time = hour[0] == "*" and "," not in hour
    return Rules(days="or", repeated=is_real_time, gap=not is_real_time)


def rules_of_cronsim(text):
    """Like Debian's cron: with a `*` at the beginning of the minute or the hour, slots follow real time, and with one at the
    beginning of a day field, both day fields must match."""
    minute, hour, day, _, weekday = text.split()
    is_real_time = "*" in (minute[0], hour[0])
    days = "and" if "*" in (day[0], weekday[0]) else "or"
    return Rules(days=days, repeated=is_real_time, gap=not is_real_time, search="hour" if is_real_time else "all")


def rules_of_croniter(text):
    """A local time that occurs twice always has two slots, and one that does not exist has a slot unless every hour matches. A
    list with all values of a field is the same as `*`."""
    _, hour, day, _, weekday = text.split()
    is_all = len(values(day, 1, 31)) == 31 or len({number % 7 for number in values(weekday, 0, 7, DAYS)}) == 7
    gap = len(values(hour, 0, 23)) < 24
    return Rules(days="and" if is_all else "or", repeated=True, gap=gap, search="one")


def instants(local, zone):
    """The instants of a local time: one, two, or none."""
    found = {int(local.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1)}
    return sorted(at for at in found if datetime.fromtimestamp(at, zone).replace(tzinfo=None) == local)


def end_of_gap(local, zone):
    while not instants(local, zone):
        local += timedelta(minutes=1)
    return instants(local, zone)[0]


def offset(at, zone):
    return datetime.fromtimestamp(at, zone).utcoffset()


def walked(slots, zone, after, is_day, hours, minutes):
    """The slots that a search in real time finds. It goes from date to date, then in steps of 3,600 s to the hour, and to the minute
    in steps of 60 s or, if there is only one minute, in one step. It ignores changes of the clock on the way."""
    kept, last, lost = [], after, None
    for slot in at_midnights(slots, zone, after, is_day, hours, minutes):
        local, date = datetime.fromtimestamp(slot, zone), datetime.fromtimestamp(slot, zone).date()
        while date > datetime.fromtimestamp(last, zone).date() and is_day(date - timedelta(days=1)):
            date -= timedelta(days=1)
        begin = max(last, datetime(date.year, date.month, date.day, tzinfo=zone).timestamp())
        # A change by half an hour (Lord Howe) makes the search enter the next hour in its middle.
        is_shifted = (offset(slot, zone) - offset(begin, zone)).seconds % 3_600
        if is_shifted and local.minute < 30 and lost in (None, (local.date(), local.hour)):
            lost = (local.date(), local.hour)
            continue
        if is_shifted and len(minutes) == 1 and slot < end_of_step(last, zone, hours, minutes[0]):
            continue
        kept.append(slot)
        last = slot
    return kept


def end_of_step(last, zone, hours, minute):
    """The instant at which the step to the only minute ends."""
    at = datetime.fromtimestamp(last + 1, zone)
    if at.hour not in hours:
        return last
    return last + 1 - at.second + ((minute - at.minute) % 60 or 60) * 60


def at_midnights(slots, zone, after, is_day, hours, minutes):
    """The slots of a search in which each date begins at midnight. If midnight does not exist, the end of the gap counts as 0:00,
    and the first hour after it is skipped if the hour 0 does not match."""
    begun = datetime.fromtimestamp(after, zone).date()
    slots = set(slots)
    for date in {datetime.fromtimestamp(slot, zone).date() for slot in slots}:
        midnight = datetime(date.year, date.month, date.day)
        if instants(midnight, zone) or date == begun or is_day(date - timedelta(days=1)):
            continue
        end = end_of_gap(midnight, zone)
        if 0 not in hours:
            slots -= set(range(end, end + 3_600))
        elif 0 in minutes:
            slots.add(end)
    return sorted(slots)


def with_one_alternative(slots, zone, after, times):
    """The slots of a search that, if the clock is put back before the next local time, tries only one other time: the first match
    that is earlier by the same amount. If this is not within the repeated time, the slots in the repeated time are lost."""
    kept, last = [], after
    for slot in slots:
        back = offset(last, zone) - offset(slot, zone)
        local = datetime.fromtimestamp(slot, zone)
        if back > timedelta(0) and local.fold:
            from_here = datetime.fromtimestamp(last, zone).replace(tzinfo=None, fold=0) - back
            alternative = next((time for time in times if time > from_here), None)
            if alternative != local.replace(tzinfo=None, fold=0):
                continue
        kept.append(slot)
        last = slot
    return kept


def calendar(text, zone, start, rules):
    """The first slots after an instant, according to these rules."""
    minute, hour, day, month, weekday = text.split()
    minutes, hours = sorted(values(minute, 0, 59)), sorted(values(hour, 0, 23))
    days, months = values(day, 1, 31), values(month, 1, 12, MONTHS)
    weekdays = {number % 7 for number in values(weekday, 0, 7, DAYS)}
    is_either = day != "*" and weekday != "*" and rules.days == "or"
    after, slots, times = start.timestamp(), set(), []

    def is_day(date):
        of_day = [date.day in days, date.isoweekday() % 7 in weekdays]
        return date.month in months and (any(of_day) if is_either else all(of_day))

    date = start.astimezone(zone).date() - timedelta(days=1)
    enough = None
    # A change of the clock moves a slot by less than a day, so one more day is searched after enough slots have been found.
    while enough is None or date <= enough:
        if is_day(date):
            for local in (datetime(date.year, date.month, date.day, h, m) for h in hours for m in minutes):
                times.append(local)
                at = instants(local, zone)
                if not at and rules.gap:
                    at = [end_of_gap(local, zone)]
                slots.update(at if rules.repeated else at[:1])
        if enough is None and sum(slot > after for slot in slots) >= SLOTS + (60 if rules.search != "all" else 0):
            enough = date + timedelta(days=1)
        date += timedelta(days=1)
    slots = sorted(slot for slot in slots if slot > after)
    if rules.search == "hour":
        slots = walked(slots, zone, after, is_day, hours, minutes)
    elif rules.search == "one":
        slots = with_one_alternative(slots, zone, after, times)
    return slots[:SLOTS]


NAMES = {
    "days": "a day field with a step over *, or with all its values, counts as * in it, so that the other one decides; in ken either fits",
    "repeated": "of a local time that comes twice, one of the two makes two slots",
    "gap": "of a local time that does not exist, one of the two makes a slot after the gap",
    "search": "it loses slots after a change of the clock, as its way of looking for them passes over them",
}


def explained(text, zone, start, theirs, rules):
    """The rules that explain a difference; none if they do not explain it."""
    if calendar(text, zone, start, rules) != theirs:
        return None
    ken = rules_of_ken(text)
    names = [name for name in NAMES if getattr(ken, name) != getattr(rules, name)]
    # A rule is needed if the calendar without it computes other slots.
    needed = []
    for name in names:
        without = Rules(**{other: getattr(ken if other == name else rules, other) for other in NAMES})
        if calendar(text, zone, start, without) != theirs:
            needed.append(NAMES[name])
    return "; ".join(needed or [NAMES[name] for name in names])


LIBRARIES = [("cronsim", of_cronsim, rules_of_cronsim), ("croniter", of_croniter, rules_of_croniter)]


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
        if mine is not None and mine != calendar(text, zone, start, rules_of_ken(text)):
            failures += 1
            expected = calendar(text, zone, start, rules_of_ken(text))
            print(f"ken does not follow its rules: {text!r} in {zone.key} after {start}\n  ken   {mine}\n  rules {expected}")
        for name, library, rules in LIBRARIES:
            try:
                theirs = library(text, zone, start)
            except Exception as error:  # an expression that the library refuses
                theirs, reason = None, f"refused by it and by ken: {type(error).__name__}" if mine is None else None
            if theirs is not None and theirs == mine:
                equal[name] += 1
                continue
            if theirs is not None and mine is not None:
                reason = explained(text, zone, start, theirs, rules(text))
            elif theirs is not None:
                reason = None
            if reason is None:
                failures += 1
                print(f"{name} differs: {text!r} in {zone.key} after {start}\n  ken    {mine}\n  {name} {theirs}\n"
                      f"  rules  {calendar(text, zone, start, rules(text))}")
            else:
                reasons[name, reason] = reasons.get((name, reason), 0) + 1
        if (count + 1) % 1_000 == 0:
            print(f"ken-scheduler beside cronsim and croniter: {count + 1} of {number} expressions", flush=True)
    print(f"ken-scheduler beside cronsim and croniter: {number} expressions, {failures} unexplained; equal: {equal}")
    for (name, reason), times in sorted(reasons.items()):
        print(f"  {name}: {times} times: {reason}")
    return 1 if failures else 0


sys.exit(main())
