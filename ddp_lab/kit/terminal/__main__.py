"""Run the command `ddp-lab`: python -m ddp_lab.kit.terminal"""

import sys

from ddp_lab.kit.terminal.main import main

sys.exit(main())
