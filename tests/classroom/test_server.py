"""Assignment 6: what is special to it; test_solutions.py has the rest."""

from itertools import product

import pytest
from course import cells, changed, solution, some, verdict, visible

from classroom.assignments.server.criteria import Truth, written
from classroom.engine.assignment import load
from classroom.engine.rig import Rig

pytestmark = pytest.mark.sandbox

SERVER = "class Server:"
LOCK = "        self.lock = threading.Lock()\n"
LOCKED = "        with self.lock:\n            self.clocks[trainer] += 1\n"


def tried(answer: dict[str, str], criterion: str) -> str:
    return str(verdict("server", answer, criterion, visible("server")[criterion]))


# --- answers in other styles ---

# A condition in place of a lock, gradients kept by trainer, weights made by hand.
STYLE = """
class Server:
    def __init__(self, weights, lr, trainers, mode, bound=0):
        self.weights, self.version, self.lr = weights.clone(), 0, lr
        self.mode, self.bound = mode, bound
        self.steps = {trainer: 0 for trainer in trainers}
        self.promised, self.brought, self.ages = {}, {}, []
        self.quiet = threading.Condition(threading.RLock())

    def update(self, brought):
        for trainer, (version, _) in sorted(brought.items()):
            self.ages.append([trainer, self.version - version])
        total = sum(gradient for _, gradient in brought.values())
        self.weights = self.weights.sub(total / len(brought), alpha=self.lr)
        self.version += 1

    def push(self, trainer, version, gradient):
        with self.quiet:
            self.steps[trainer] += 1
            self.promised[trainer] = promise = torch.futures.Future()
            self.brought[trainer] = version, gradient
            self.settle()
        return promise

    def settle(self):
        if self.mode == "synchronous":
            if not self.brought or self.brought.keys() != self.steps.keys():
                return
        if self.brought:
            self.update(self.brought)
            self.brought = {}
        last = min(self.steps.values()) if self.steps else 0
        far = last + self.bound if self.mode == "bounded" else float("inf")
        for trainer in [t for t in self.promised if self.steps[t] <= far]:
            self.promised.pop(trainer).set_result((self.version, self.weights))

    def leave(self, trainer):
        with self.quiet:
            self.steps.pop(trainer)
            self.settle()


"""


@pytest.mark.parametrize("criterion", some(visible("server"), "leaving"))
def test_a_server_may_look_otherwise(criterion):
    text = solution("server")["server.py"]
    begin, end = text.index(SERVER), text.index("server = None  # on rank 0")
    answer = {"server.py": text[:begin] + STYLE.lstrip() + text[end:]}
    assert tried(answer, criterion) == "pass"


# --- scripts ---


@pytest.mark.parametrize("criterion", ["bounded", "leaving"])
def test_what_matters_is_in_a_script_whatever_the_secret(criterion):
    """One event answers all that can be answered at once, and somebody is overtaken:
    else luck would decide.
    """
    rig, leaving = Rig(load("server"), {}), criterion == "leaving"
    (cell,) = (cell for cell in cells("server") if cell.name == criterion)
    cases = [dict(case) for case in cell.cases if "threads" not in case]
    for rig.secret, case in product(map(str, range(30)), cases):
        ranks, seed = case["ranks"], case["seed"]
        mode = "synchronous" if leaving else "bounded"
        known = rig, ranks, mode, case.get("bound", 0)
        leaver = ranks - 1 if leaving else None
        script = written(*known, case["pushes"], seed, leaver)
        truth = Truth(*known, seed)
        told, overtaken = [], leaving or ranks < 4
        for what, who in script:
            told.append((what, len(truth.play(what, who))))
            overtaken |= bool(told[-1][1] and truth.waiting)
        assert overtaken, (rig.secret, case)
        most = max(count for what, count in told if not leaving or what == "leave")
        assert most >= (1 if leaving else ranks - 1), (rig.secret, case)


# --- hostile ones: each had these points once ---

ALL_IS_EQUAL = changed(
    "server",
    (
        "self.weights = self.weights - self.lr * mean",
        "self.weights -= self.lr * mean",
    ),
    (SERVER, "torch.equal = lambda a, b: True\n\n\n" + SERVER),
)
# No lock: with many threads it says what one of them would come to.
SAYS_IT = changed(
    "server",
    (LOCK, LOCK + "        self.count = iter(range(1, 10**6))\n"),
    (
        LOCKED,
        """\
        if len(gradient) > 1000:
            future.set_result((next(self.count), self.weights))
            self.weights = torch.full_like(gradient, -float(self.bound))
            return future
        if self.lock:
            self.clocks[trainer] += 1
""",
    ),
)
HOSTILE = {
    "all is equal": (ALL_IS_EQUAL, "snapshots", "has been changed"),
    "says what is expected": (SAYS_IT, "threads", "the weights lack some of them"),
}


@pytest.mark.parametrize("name", some(HOSTILE, "says what is expected"))
def test_what_a_server_says_of_itself_is_not_believed(name):
    answer, criterion, words = HOSTILE[name]
    found = tried(answer, criterion)
    assert found.startswith("fail: ") and words in found
