"""What only make calls."""

import sys

# See classroom/__init__.py.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
