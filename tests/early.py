"""Make imports quick, before pytest's own plugins import: `pytest -p tests.early`.

jsonschema, which checks notebooks, would use a grammar of web addresses if it found
this module, which takes 1.3 seconds to import: in each worker of xdist.
"""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
