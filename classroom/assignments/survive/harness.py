"""One life of a training: it ends well, or a rank dies where the plan says."""

from lives import Watch
from ranks import RUN_FOLDER, answer, give, inputs, process_group
from torch.nn.utils import parameters_to_vector

FOLDER = RUN_FOLDER / "out" / "snapshots"


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("survive.py")
        watch = Watch(rank, given, FOLDER)
        run = program.train(FOLDER, program.Job(**given["job"]))
        watch.look()
        give(weights=parameters_to_vector(run.model.parameters()))


if __name__ == "__main__":
    main()
