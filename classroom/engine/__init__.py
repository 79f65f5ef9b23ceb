"""What grades any assignment; it names none of them. See assignment.py for one."""

import sys

# jsonschema, which checks notebooks, would import a grammar of web addresses if it
# found this module: seconds in every process, for what no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
