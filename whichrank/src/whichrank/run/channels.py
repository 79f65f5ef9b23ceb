"""Every channel between the processes of a run, but for its files (record/names.py).

Each is an environment variable. It imports nothing: rank.py, proxy.py and guard.py,
which are started often and alone, are given their names by those that start them, or
find this file beside them.

| channel | who writes | who reads |
|---|---|---|
| `RUN` | guard.py, to what it starts | guard.py, to find what belongs to a run |
| `NODE` | whoever starts torchrun on one of several nodes | proxy.py, for where.json |
| `HOME` | here.py, for a program that plain python runs | rank.py |
| `LENT` | `Warm.lend` | a `Warm` of a process below, which uses that fork server |
| `COLD_ONLY` | the user | warm.py: no warm start |
| `NNODES` | the user, in a SLURM job | step.py: shares ranks between nodes |

Beside them a run is marked by two limits that no program uses: see guard.py.
"""

RUN = "WHICHRANK_RUN"
NODE = "WHICHRANK_NODE"
HOME = "WHICHRANK_HOME"
LENT = "WHICHRANK_WARM"
COLD_ONLY = "WHICHRANK_COLD"
NNODES = "WHICHRANK_NNODES"
