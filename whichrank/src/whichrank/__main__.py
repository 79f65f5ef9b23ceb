"""Run the command `whichrank`: python -m whichrank"""

import sys

from whichrank.terminal.main import main

sys.exit(main())
