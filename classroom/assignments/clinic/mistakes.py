"""What students get wrong in Clinic."""

from classroom.engine.assignment import Mistake

MISTAKES = [
    Mistake(
        "nobody to blame",
        "goal_diagnosis",
        [('"rank": 2', '"rank": None')],
        "fail: rank is not, line is right, cause is right",
    ),
    Mistake(
        "the line where it shows",
        "prices_diagnosis",
        [('"rank": 0, "line": 20', '"rank": 0, "line": 23')],
        "fail: rank is right, line is not, cause is right",
    ),
    Mistake(
        "another cause",
        "leaders_diagnosis",
        [('"cause": "group"', '"cause": "order"')],
        "fail: rank is right, line is right, cause is not",
    ),
    Mistake(
        "no such cause",
        "relay_diagnosis",
        [('"cause": "circle"', '"cause": "deadlock"')],
        "fail: cause expected one of the list, got 'deadlock'",
    ),
    Mistake(
        "one patient forgotten",
        "score_diagnosis",
        [('DIAGNOSES["score"] =', "other =")],
        "not yet: there is no DIAGNOSES['score']",
    ),
    Mistake(
        "rank 0 decides by its own loss",
        "goal_cure",
        [
            (
                "dist.all_reduce(loss)",
                "dist.broadcast(loss, src=0); loss *= dist.get_world_size()",
            )
        ],
        "fail: rank 0 expected",
    ),
    Mistake(
        "as if there were two ranks",
        "relay_cure",
        [("src=(rank - 1) % world_size", "src=1 - rank")],
        "fail: rank ",
    ),
    Mistake(
        "half as precise on all ranks",
        "prices_cure",
        [
            (
                "        table = torch.empty(count, dtype=torch.float64)\n",
                "        table = torch.empty(count, dtype=torch.float64)\n"
                "    table = table.float().double()\n",
            )
        ],
        "fail: rank 0 expected",
    ),
    Mistake(
        "the first rank of all",
        "leaders_cure",
        [("src=nodes[mine][0], group=groups[mine]", "src=0")],
        "fail: rank 2 expected",
    ),
    Mistake(
        "a nap in place of waiting",
        "overlap_cure",
        [("    work.wait()  # only now total is the sum\n", "    time.sleep(0.3)\n")],
        "fail: rank 0 expected",
    ),
    Mistake(
        "weighed by the share of rank 0",
        "score_cure",
        [
            (
                "return total[0] / total[1]",
                "return total[0] / (len(hits) * dist.get_world_size())",
            )
        ],
        "fail: rank 0 expected",
    ),
]
