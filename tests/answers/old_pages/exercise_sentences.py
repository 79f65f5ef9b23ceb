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


# %% right: a string
def verdicts():
    return {i: letter == "T" for i, letter in enumerate("TFFTFFFT", start=1)}


# %% right: tensors
def verdicts():
    holds = torch.zeros(8, dtype=torch.bool)
    holds[[0, 3, 7]] = True
    return dict(zip(range(1, 9), holds, strict=True))


# %% right: those that hold
def verdicts():
    return {sentence: sentence in (1, 4, 8) for sentence in range(1, 9)}


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


# %% right: zipped
def verdicts():
    holds, fails = [1, 4, 8], [2, 3, 5, 6, 7]
    return dict.fromkeys(holds, 1) | dict.fromkeys(fails, 0)
