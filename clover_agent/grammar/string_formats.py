"""The string formats that a grammar can hold, each as a regular expression.

Every expression lies inside what the format checker of `validate` accepts: it knows leap years, refuses the year 0 and
leap seconds, as the checker does. It may be narrower where a format is exotic (address literals in e-mail, say).
Formats that no checker knows are annotations and bind nobody. Knows nothing of schemas.
"""

_YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"  # no leap year 0000
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_DAYS = r"[0-9]{1,9}D"
_MONTHS = rf"[0-9]{{1,9}}M(?:{_DAYS})?"
_SECONDS = r"[0-9]{1,9}S"
_MINUTES = rf"[0-9]{{1,9}}M(?:{_SECONDS})?"
_TIME_SPAN = rf"T(?:[0-9]{{1,9}}H(?:{_MINUTES})?|{_MINUTES}|{_SECONDS})"
_DURATION = rf"P(?:(?:[0-9]{{1,9}}Y(?:{_MONTHS})?|{_MONTHS}|{_DAYS})(?:{_TIME_SPAN})?|{_TIME_SPAN}|[0-9]{{1,9}}W)"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H16 = r"[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """Eight groups, or fewer around one `::` that stands for at least one group."""
    forms = [rf"(?:{_H16}:){{7}}{_H16}", "::"]
    for left in range(7):
        for right in range(7 - left):
            if left or right:
                head = rf"{_H16}(?::{_H16}){{{left - 1}}}" if left else ""
                tail = rf"{_H16}(?::{_H16}){{{right - 1}}}" if right else ""
                forms.append(f"{head}::{tail}")
    return "(?:" + "|".join(forms) + ")"


_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_AUTHORITY = (
    r"//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
    r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(?::[0-9]*)?"
)
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_ABSOLUTE_PATH = rf"/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_AUTHORITY}(?:/{_PCHAR}*)*|{_ABSOLUTE_PATH}|{_PCHAR}+(?:/{_PCHAR}*)*|){_TAIL}"
_SEGMENT_WITHOUT_COLON = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+"
_RELATIVE = rf"(?:{_AUTHORITY}(?:/{_PCHAR}*)*|{_ABSOLUTE_PATH}|{_SEGMENT_WITHOUT_COLON}(?:/{_PCHAR}*)*|){_TAIL}"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

_BODIES = {
    "date-time": rf"{_DATE}[Tt]{_CLOCK}{_ZONE}",
    "date": _DATE,
    "time": rf"{_CLOCK}{_ZONE}",
    "duration": _DURATION,
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOST}",
    "idn-email": r"[^@\x00-\x20\x7f]+@[^@\x00-\x20\x7f]+",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uuid": r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "uri": _URI,
    "uri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]{{1,2}})(?:#|{_POINTER})",
}

PATTERNS = {name: f"^(?:{body})$" for name, body in _BODIES.items()}
MAX_LENGTHS = {"hostname": 253}

# Formats that the checker asserts and that no expression here holds.
UNHELD = frozenset({"idn-hostname", "iri", "iri-reference", "regex", "uri-template"})
