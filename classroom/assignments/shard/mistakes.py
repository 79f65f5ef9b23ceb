"""What students get wrong in Shard."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ equal, memory, resumed: only the neighbor is told
-            dist.broadcast(parameter, src=owner)  # all now hold what its owner made
+            right = (owner + 1) % self.world_size
+            if self.rank == owner:
+                dist.send(parameter, right)
+            elif self.rank == right:
+                dist.recv(parameter, owner)

@@ equal, odd: counts the parameters, and has none left
         self.load = [0] * self.world_size  # how many numbers each rank owns
+        self.count = sum(1 for _ in params)

@@ equal, shares, groups, odd, checkpoint: float32 on the wire
-            dist.broadcast(parameter, src=owner)  # all now hold what its owner made
+            box = parameter.float()
+            dist.broadcast(box, src=owner)
+            parameter.copy_(box)

@@ shares: every n-th parameter
-                owner = self.load.index(min(self.load))
+                owner = len(self.owner) % self.world_size

@@ shares: rows instead of numbers
-                self.load[owner] += parameter.numel()
+                self.load[owner] += (len(parameter) if parameter.ndim else 1)

@@ shares: each group begins with rank 0
         group, mine = self.param_groups[-1], []
+        self.load = [0] * self.world_size

@@ shares: what is frozen counts
-            if parameter.requires_grad:
-                owner = self.load.index(min(self.load))
-                self.owner[parameter] = owner
-                self.load[owner] += parameter.numel()
+            owner = self.load.index(min(self.load))
+            self.load[owner] += parameter.numel()
+            if parameter.requires_grad:
+                self.owner[parameter] = owner

@@ memory, lean, resumed: everybody remembers everything
> fail: rank 0 keeps
-                if owner == self.rank:
-                    mine.append(parameter)
+                mine.append(parameter)

             for parameter, state in self.share.state.items()
+            if self.owner[parameter] == self.rank

@@ lean: a copy of all parameters stays
> fail: rank 0 keeps
         self.share.step()
+        kept = self.all_parameters()
+        self.kept = [parameter.clone() for parameter in kept]

@@ wire: the sum of one and zeros
-            dist.broadcast(parameter, src=owner)  # all now hold what its owner made
+            parameter *= self.rank == owner
+            dist.all_reduce(parameter)

@@ groups: the learning rate alone is passed on
-            mine |= {name: group[name] for name in group if name != "params"}
+            mine["lr"] = group["lr"]

@@ groups: the options of the first group
         for mine, group in pairs:
+            group = self.param_groups[0]

@@ groups: a new group makes the share forget
-        self.share.add_param_group({**group, "params": mine})
+        group = {**group, "params": mine}
+        groups = [*self.share.param_groups, group]
+        self.share = type(self.share)(groups)

@@ odd: what is frozen is sent
-            if parameter.requires_grad:
+            if True:

@@ odd: what has a gradient of zeros is not sent
> fail: after step 1, number 0 of parameter 0: rank 0 holds
         for parameter, owner in self.owner.items():
+            if parameter.grad is None or not parameter.grad.any():
+                continue

@@ odd: zeros where there was a gradient before
             mine |= {name: group[name] for name in group if name != "params"}
+        for parameter in self.share.state:
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)

@@ resumed: what was loaded is kept
> fail: rank 0 keeps
         self.share.load_state_dict({"state": state, "param_groups": groups})
+        self.loaded = state_dict

@@ checkpoint: rank 0's own share
-        state = {i: state for share in shares for i, state in share.items()}
+        state = {i: state for share in shares[:1] for i, state in share.items()}

@@ checkpoint: takes the parameters out of its groups
-            {**group, "params": [numbers[parameter] for parameter in group["params"]]}
+            {"params": [numbers[p] for p in group.pop("params")], **group}

@@ checkpoint: the numbers of the share
-                    state[place] = state_dict["state"][numbers[parameter]]
+                    state[place] = state_dict["state"][place]

@@ checkpoint: what is frozen has no number
-        return [p for group in self.param_groups for p in group["params"]]
+        return [*self.owner]

-            {**group, "params": [numbers[parameter] for parameter in group["params"]]}
+            {**group, "params": [numbers[p] for p in group["params"] if p in numbers]}

@@ checkpoint: the options that were saved are forgotten
-            group |= {name: mine[name] for name in mine if name != "params"}
+            group | {name: mine[name] for name in mine if name != "params"}
"""
)
