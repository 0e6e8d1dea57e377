"""How does one tell a load profile aloud? Sentences about peaks, lows, the day, the week and what is missing."""

from zoneinfo import ZoneInfo

from piqc_pipeline.history.profile import LoadProfile, Span, WorkloadProfile

WEAK, STRONG = 0.3, 0.6
"""Below the first a pattern is called weak, from the second on strong."""
LOWER_BOUND_CENSORED_PCT = 5.0
"""Censored share of busy hours above which a forecast is a lower bound."""
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def in_words(profile: WorkloadProfile, timezone: str = "UTC") -> str:
    """A few sentences about one workload; what the data cannot tell is said to be unknown."""
    name = "/".join(profile.workload.split("/")[1::2])
    days = (profile.end - profile.start).total_seconds() / 86_400
    if profile.mean_pct is None:
        return f"{name}: {days:.1f} days stored, its utilization is unknown."
    parts = [f"{name} was {profile.mean_pct:.0f} % busy on average over {days:.1f} days"]
    if profile.peak_at is not None and profile.peak_pct is not None:
        at = profile.peak_at.astimezone(ZoneInfo(timezone))
        parts[0] += f", at most {profile.peak_pct:.0f} % ({DAYS[at.weekday()]} {at:%d %B %H:%M})."
    else:
        parts[0] += "."
    parts.append(_day(profile))
    parts.append(_week(profile))
    if profile.high_hours or profile.low_hours:
        parts.append(f"It spent {profile.high_hours:.1f} h above 95 % and {profile.low_hours:.1f} h below 5 %.")
    if profile.censored_pct:
        bound = (profile.censored_busy_pct or 0) > LOWER_BOUND_CENSORED_PCT
        parts.append(
            f"In {profile.censored_pct:.1f} % of the time its replicas were saturated"
            + (": a forecast of its demand is a lower bound." if bound else ".")
        )
    if profile.gaps:
        parts.append(f"{profile.gaps} gaps hide {profile.gap_hours:.1f} h.")
    parts.append(f"Signal: {profile.signal}, confidence {profile.confidence}.")
    return " ".join(part for part in parts if part)


def longest(profile: LoadProfile, kind: str, count: int = 5) -> list[Span]:
    """The longest spans of a kind (`high`, `low` or `gap`), longest first."""
    spans = [span for span in profile.spans if span.kind == kind]
    return sorted(spans, key=lambda span: (-span.hours, span.start, span.workload))[:count]


def _day(profile: WorkloadProfile) -> str:
    if profile.night_pct is None or profile.busy_hours_pct is None:
        return ""
    text = f"From 8 to 20 o'clock it was {profile.busy_hours_pct:.0f} % busy, at night {profile.night_pct:.0f} %"
    if profile.daily_strength is None:
        return text + "; too short to call that a daily pattern."
    return text + f": a {_strength(profile.daily_strength)} daily pattern."


def _week(profile: WorkloadProfile) -> str:
    if profile.weekly_strength is None or profile.workday_weekend_ratio is None:
        return "Whether its week has a pattern cannot be told before two weeks."
    ratio = profile.workday_weekend_ratio
    return (
        f"Workdays carry {ratio:.2f} times the load of weekends: a {_strength(profile.weekly_strength)} weekly pattern."
    )


def _strength(value: float) -> str:
    return "weak" if value < WEAK else "strong" if value >= STRONG else "moderate"
