from dataclasses import astuple, dataclass


@dataclass(order=True)
class Cut:
    """A layout that knows whether it fits and how long it takes."""

    data: int
    tensor: int
    pipeline: int

    def fits(self, training):
        return memory(astuple(self), *training) <= 80 * GB

    def time(self, training):
        return seconds(astuple(self), *training)


class Search:
    def __init__(self, machines, *training):
        self.devices, self.training = 8 * machines, training
        self.layers = training[1]

    def __iter__(self):
        for tensor in (1, 2, 4, 8):
            for pipeline in range(1, self.layers + 1):
                data, left = divmod(self.devices, tensor * pipeline)
                cut = Cut(data, tensor, pipeline)
                if not left and self.layers % pipeline == 0 and cut.fits(self.training):
                    yield cut
                    break

    def best(self):
        return min(self, key=lambda cut: cut.time(self.training))


def layout(parameters, layers, width, tokens, machines):
    return astuple(Search(machines, parameters, layers, width, tokens).best())
