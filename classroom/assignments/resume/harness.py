"""One life of a training: it ends well, or this rank dies where the plan says.

Each life is a run of its own; what a life leaves in its folder is there in the next.
"""

from lives import DEATHS, add, contents
from ranks import RUN_FOLDER, answer, give, inputs, process_group, say
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

CHECKPOINTS = RUN_FOLDER / "out" / "checkpoints"


def watch_steps(rank: int, given: dict) -> None:
    """Say each step; in some push the weights, die or look around, as given."""
    plan, took = given["plan"], 0

    def after_step(optimizer: Optimizer, *_: object) -> None:
        nonlocal took
        took += 1
        say("step")
        if took == 1 and given["push"] is not None:
            add(optimizer, given["push"])
        if plan and took == plan["step"] and plan["rank"] in (rank, None):
            DEATHS[plan["how"]](*plan.get("with", []))
        if took == given["look"]:
            give(contents=contents(CHECKPOINTS))

    register_optimizer_step_post_hook(after_step)


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("resume.py")
        watch_steps(rank, given)
        try:
            run = program.train(CHECKPOINTS, program.Job(**given["job"]))
        except (SystemExit, RuntimeError, ValueError) as error:
            if not given["may_refuse"] or isinstance(error, NotImplementedError):
                raise
            give(refused=str(error))
            return
        give(weights=parameters_to_vector(run.model.parameters()), refused=None)


if __name__ == "__main__":
    main()
