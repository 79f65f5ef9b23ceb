"""What students get wrong in DDP from scratch."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ start: what is in no state_dict keeps its own values
-        for tensor in [*module.parameters(), *module.buffers()]:
+        for tensor in module.state_dict().values():

@@ steps: a sum instead of the mean
-            mean = flat / dist.get_world_size()
+            mean = flat

@@ steps: hooks anew in every forward
> fail: rank 0: its parameters have 12 hooks after step 1, 16 after step 2
     def forward(self, *args, **kwargs):
+        for parameter in self.parameters:
+            parameter.register_post_accumulate_grad_hook(self.on_gradient)

@@ buckets, no_sync: buffers are sent in every forward
> fail: rank 0 expected all_reduces such as [160, 160, 80] bytes in step 1, got [160, 160, 80] and 1 other
-        return self.module(*args, **kwargs)
+        for buffer in self.module.buffers():
+            dist.broadcast(buffer, src=0)
+        return self.module(*args, **kwargs)

@@ buckets: what fills the room to its end begins a new one
-        if not buckets or size > room:
+        if not buckets or size >= room:

@@ buckets: a bucket is full when it is more than full
-        if not buckets or size > room:
+        if not buckets or room <= 0:

@@ early, fast, order, no_sync: sends everything in finish()
-        if not self.syncing:
+        if True:

@@ fast: waits in the hook
> fail: rank 0 did not come through backward() before rank 1
         self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
+        self.sent[-1][1].wait()

@@ fast: sends when half of the gradients are there
-            if not all(p in self.ready for p in bucket):
+            late = len(self.ready) <= len(self.parameters) // 2
+            if late or not all(p in self.ready for p in bucket):

@@ order: keeps the order of parameters()
-        if not self.agreed:
+        if False:

@@ order: looks at the bucket of the newest gradient alone
> fail: rank 1 had sent 20 of 160 bytes when backward() of step 1 was through
-        for bucket in self.buckets[len(self.sent) :]:
-            if not all(p in self.ready for p in bucket):
-                break
+        bucket = self.buckets[len(self.sent)]
+        full = all(p in self.ready for p in bucket)
+        if full and any(p is parameter for p in bucket):
             self.send(bucket)

@@ order: the order of the last rank
> fail: rank 0 expected all_reduces of [
-        dist.broadcast(order, src=0)  # every rank now holds rank 0's order
+        dist.broadcast(order, src=dist.get_world_size() - 1)

@@ order, unused: each rank keeps the order that it has seen
-        dist.broadcast(order, src=0)  # every rank now holds rank 0's order

@@ waits: waits for the last bucket alone
-            work.wait()  # only now flat holds the sum over the ranks
+            self.sent[-1][1].wait()

@@ no_sync: a raise leaves the switch off
-        try:
-            yield
-        finally:
-            self.syncing = True
+        yield
+        self.syncing = True

@@ no_sync: what the body raises is lost
> fail: rank 0: RuntimeError: no_sync() keeps
-        finally:
-            self.syncing = True
+        except Exception:
+            pass
+        self.syncing = True

@@ no_sync: divides by the number of micro-batches
         self.syncing = True
+        self.micro = 1
         self.ready = {}  # parameters whose .grad is complete, in that order

-            mean = flat / dist.get_world_size()
+            mean = flat / dist.get_world_size() / self.micro

-        self.ready, self.sent = {}, []
+        self.ready, self.sent, self.micro = {}, [], 1

-        self.syncing = False
+        self.syncing = False
+        self.micro += 1

@@ no_sync: takes what no_sync() has gathered for complete
-        self.ready[parameter] = True

-        if not self.syncing:
+        self.ready[parameter] = True
+        if not self.syncing:

@@ frozen_tied: a tied weight is counted twice
-        self.parameters = [p for p in module.parameters() if p.requires_grad]
+        self.parameters = [
+            p
+            for layer in module.modules()
+            for p in layer.parameters(recurse=False)
+            if p.requires_grad
+        ]

@@ frozen_tied: frozen parameters are sent as zeros
-        self.parameters = [p for p in module.parameters() if p.requires_grad]
+        self.parameters = list(module.parameters())

         for parameter in self.parameters:
+            if not parameter.requires_grad:
+                continue

@@ frozen_tied: frozen parameters are not shared
-        for tensor in [*module.parameters(), *module.buffers()]:
+        trained = [p for p in module.parameters() if p.requires_grad]
+        for tensor in [*trained, *module.buffers()]:

@@ unused: what backward() has left out is not sent
-        for bucket in self.buckets[len(self.sent) :]:  # backward() has left these out
+        for bucket in []:  # backward() has left these out
             self.send(bucket)
-        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
+        for bucket, (flat, work) in zip(self.buckets, self.sent):

@@ unused: what this rank has not used stays without .grad
> fail: gradients of step 0: rank 0 expected
-                parameter.grad = piece.view_as(parameter)
+                if parameter.grad is not None:
+                    parameter.grad = piece.view_as(parameter)

@@ unused: what is not full in a step is not emptied
-        self.ready, self.sent = {}, []
+        full = [b for b in self.buckets if all(p in self.ready for p in b)]
+        for parameter in [p for bucket in full for p in bucket]:
+            del self.ready[parameter]
+        self.sent = []

@@ unused: zeros of float32, whatever the gradients are
-        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
+        gradients = [torch.zeros(p.shape) if p.grad is None else p.grad for p in bucket]

@@ unused: the new order forgets who was not there
-        order = torch.tensor(came + rest, device=device)  # (parameters,)
+        order = torch.tensor(came, device=device)  # (parameters,)

@@ unused: zeros in the place of what no_sync() has gathered
-        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
+        gradients = [p.grad if p in self.ready else torch.zeros_like(p) for p in bucket]
"""
)
