"""One life of a training: it ends well, or a rank dies where the plan says.

Each life is a run of its own; what a life leaves in its folder is there in the next.
"""

from lives import DEATHS, add, contents
from ranks import RUN_FOLDER, answer, give, inputs, process_group, say
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

FOLDER = RUN_FOLDER / "out" / "snapshots"


class Watch:
    """Says each step, and each snapshot; in some step, pushes the weights or dies."""

    def __init__(self, rank: int, given: dict):
        self.rank, self.push, self.plan = rank, given["push"], given["plan"]
        self.took, self.last = 0, contents(FOLDER) if rank == 0 else {}
        register_optimizer_step_post_hook(self.after_step)

    def look(self) -> None:
        """See whether the folder has changed since the last look."""
        if self.rank == 0 and (now := contents(FOLDER)) != self.last:
            self.last = now
            say("snapshot")

    def after_step(self, optimizer: Optimizer, *_: object) -> None:
        """Runs before the program gets to save this step."""
        self.took += 1
        self.look()
        say("step")
        if self.took == 1 and self.push is not None:
            add(optimizer, self.push)
        plan = self.plan
        if plan and self.took == plan["step"] and plan["rank"] in (self.rank, None):
            DEATHS[plan["how"]](*plan["with"])


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("survive.py")
        watch = Watch(rank, given)
        run = program.train(FOLDER, program.Job(**given["job"]))
        watch.look()
        give(weights=parameters_to_vector(run.model.parameters()))


if __name__ == "__main__":
    main()
