"""A run's folder, as nodes leave it: for tests of what is read of them."""

import json
from dataclasses import asdict
from pathlib import Path

from whichrank.record.plan import AgentEnd, Event, Meets, Plan, add_event


class Left:
    """A run's folder, as the nodes leave it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, path: str, content) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def plan(self) -> None:
        meets = Meets("2", "0", "node0:29400", "c10d")
        self.write("plan.json", asdict(Plan([meets, meets])))
        for node in (0, 1):
            self.write(f"node_{node}/err", "")

    def life(self, node, local, rank, start, end=None, code=0, size=2, asked=False):
        where = {"rank": rank, "local_rank": local, "world_size": size}
        folder = f"node_{node}/lives/{start:.6f}_{local}"
        self.write(f"{folder}/where.json", where | {"node": node, "start": start})
        self.write(f"{folder}/stdout.log", f"[rank {rank}] at {start}\n")
        if end is not None:
            word = {"code": code, "time": end, "asked": asked}
            self.write(f"{folder}/exit.json", word)

    def agent(self, node: int, code: int, at: float, **more) -> None:
        AgentEnd(code, at, **more).write(self.folder / f"node_{node}")

    def happened(self, *found: Event) -> None:
        for event in found:
            add_event(self.folder, event)


def comings_and_goings(left: Left) -> None:
    """Node 1 is killed, comes back, and at last a rank of it dies."""
    left.life(0, 0, 0, 1.0, 5.1, code=1)
    left.life(1, 0, 1, 1.1, 5.0, code=-9)
    left.life(0, 0, 0, 8.0, 12.0, code=-15, size=1, asked=11.9)
    left.life(1, 0, 1, 13.0, 15.0, code=-9)
    left.life(0, 0, 0, 13.1, 15.1, code=1)
    left.life(0, 0, 0, 17.0, 20.0)
    left.life(1, 0, 1, 17.1, 20.1)
    left.happened(Event("kill", 1, 4.9), Event("start", 1, 9.0))
