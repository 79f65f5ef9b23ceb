"""A course made of the lab: assignments whose grades come from real runs."""

import sys

# jsonschema, which checks notebooks, would build a grammar of web addresses if it found
# this module: more than a second of each command.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
