"""What students get wrong in Shard."""

from classroom.engine.assignment import Mistake

SENT = (
    "            dist.broadcast(parameter, src=owner)"
    "  # all now hold what its owner made"
)
GROUP = '        self.share.add_param_group({**group, "params": mine})'
STEP = "        self.share.step()\n"
MISTAKES = [
    Mistake(
        "only the neighbour is told",
        "equal",
        [
            (
                SENT,
                "            right = (owner + 1) % self.world_size\n"
                "            if self.rank == owner:\n"
                "                dist.send(parameter, right)\n"
                "            elif self.rank == right:\n"
                "                dist.recv(parameter, owner)",
            )
        ],
    ),
    Mistake(
        "every n-th parameter",
        "shares",
        [("self.load.index(min(self.load))", "len(self.owner) % self.world_size")],
    ),
    Mistake(
        "rows instead of numbers",
        "shares",
        [("parameter.numel()", "(len(parameter) if parameter.ndim else 1)")],
    ),
    Mistake(
        "each group begins with rank 0",
        "shares",
        [
            (
                "        group, mine = self.param_groups[-1], []\n",
                "        group, mine = self.param_groups[-1], []\n"
                "        self.load = [0] * self.world_size\n",
            )
        ],
    ),
    Mistake(
        "everybody remembers everything",
        "memory",
        [
            (
                "                if owner == self.rank:\n"
                "                    mine.append(parameter)",
                "                mine.append(parameter)",
            ),
            (
                "            for parameter, state in self.share.state.items()",
                "            for parameter, state in self.share.state.items()\n"
                "            if self.owner[parameter] == self.rank",
            ),
        ],
    ),
    Mistake(
        "a copy of all parameters stays",
        "memory",
        [
            (
                STEP,
                f"{STEP}        kept = self.all_parameters()\n"
                "        self.kept = [parameter.clone() for parameter in kept]\n",
            )
        ],
    ),
    Mistake(
        "the sum of one and zeros",
        "wire",
        [
            (
                SENT,
                "            parameter *= self.rank == owner\n"
                "            dist.all_reduce(parameter)",
            )
        ],
    ),
    Mistake(
        "everybody sends everything",
        "wire",
        [
            (
                SENT,
                "            all_ranks = [parameter.clone() for _ in self.load]\n"
                "            dist.all_gather(all_ranks, parameter)\n"
                "            parameter.copy_(all_ranks[owner])",
            )
        ],
    ),
    Mistake(
        "options are as they were",
        "groups",
        [("            mine |= {", "            mine | {")],
    ),
    Mistake(
        "the options of the first group",
        "groups",
        [
            (
                "            mine |= {name: group[name] for",
                "            group = self.param_groups[0]\n"
                "            mine |= {name: group[name] for",
            )
        ],
    ),
    Mistake(
        "a new group makes the share forget",
        "groups",
        [
            (
                GROUP,
                '        group = {**group, "params": mine}\n'
                "        groups = [*self.share.param_groups, group]\n"
                "        self.share = type(self.share)(groups)",
            )
        ],
    ),
    Mistake(
        "what is frozen is sent",
        "odd",
        [("            if parameter.requires_grad:", "            if True:")],
    ),
    Mistake(
        "zeros where there was a gradient before",
        "odd",
        [
            (
                STEP,
                "        for parameter in self.share.state:\n"
                "            if parameter.grad is None:\n"
                "                parameter.grad = torch.zeros_like(parameter)\n" + STEP,
            )
        ],
    ),
    Mistake(
        "rank 0's own share",
        "checkpoint",
        [("for share in shares for i,", "for share in shares[:1] for i,")],
    ),
    Mistake(
        "the numbers of the share",
        "checkpoint",
        [
            (
                'state[place] = state_dict["state"][numbers[parameter]]',
                'state[place] = state_dict["state"][place]',
            )
        ],
    ),
    Mistake(
        "the options that were saved are forgotten",
        "checkpoint",
        [("            group |= {", "            group | {")],
    ),
]
