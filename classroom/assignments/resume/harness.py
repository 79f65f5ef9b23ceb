"""One life of a training: it ends well, or this rank dies where the plan says."""

from lives import Watch
from ranks import RUN_FOLDER, answer, give, inputs, process_group
from torch.nn.utils import parameters_to_vector

CHECKPOINTS = RUN_FOLDER / "out" / "checkpoints"


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("resume.py")
        Watch(rank, given, CHECKPOINTS)
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
