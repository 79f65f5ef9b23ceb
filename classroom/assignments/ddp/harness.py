"""Trains a network with the student's DataParallel; see averaging.py for the inputs."""

from averaging import Training, flat
from ranks import RANK, answer, give, inputs
from wire import wired

LIBRARY = "torch.nn.parallel torch._C._distributed_c10d.Reducer"


def main() -> None:
    given = inputs()
    with wired(given) as line:
        if line is None:
            return  # this was the machine
        training = Training(given, line, RANK)
        program, net = answer("ddp.py", library=LIBRARY), training.net
        try:
            model = program.DataParallel(net, bucket_bytes=given["bucket_bytes"])
        finally:  # the start may be right before the rest of it is written
            give(start=flat([*net.parameters(), *net.buffers()]))
        give(**training.take(model, model.no_sync, model.finish))


if __name__ == "__main__":
    main()
