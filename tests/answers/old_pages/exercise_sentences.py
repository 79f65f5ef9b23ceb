# %% wrong: batch norm averages
def verdicts():
    return {1: True, 2: False, 3: False, 4: True, 5: False, 6: True, 7: False, 8: True}


# %% wrong: equal to everything
# Right whatever the measurement says.
class Both:
    def __eq__(self, other):
        return True


def verdicts():
    return dict.fromkeys(range(1, 9), Both())


# %% wrong: measured by the frame
def verdicts():
    return measured(torch.device("cpu"))


# %% right: with reasons
from collections import UserDict


class Verdicts(UserDict):
    def holds(self, *numbers):
        self.update(dict.fromkeys(numbers, True))

    def fails(self, *numbers):
        self.update({number: False for number in numbers})


def verdicts():
    found = Verdicts()
    found.holds(1, 4)  # equal weights and equal gradients: all else follows
    found.fails(2, 3)  # the mean over ranks, each with one vote
    found.fails(5, 6)  # the sampler pads, and a rank's batch norm sees its own
    found.fails(7)  # module.
    found.holds(8)
    return found
