"""What students get wrong in Overlap."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    '''
@@ mean: a sum instead of the mean
-            mean = flat / dist.get_world_size()
+            mean = flat

@@ mean: as if there were two ranks
-            mean = flat / dist.get_world_size()
+            mean = flat / 2

@@ buckets: a message for each parameter
-        if not buckets or size > room:
+        if True:

@@ buckets: a bucket is full when it is more than full
-        if not buckets or size > room:
+        if not buckets or room <= 0:

@@ buckets: counts numbers instead of bytes
-        size = parameter.numel() * parameter.element_size()
+        size = parameter.numel()

@@ hidden, order, accumulate: sends everything in wait()
         self.ready[parameter] = True
+        return

@@ hidden: waits in the hook
> fail: rank 0 did not come through backward() before rank 1
         self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
+        self.sent[-1][1].wait()

@@ hidden: waits for one bucket before it sends the next
> fail: rank 0 did not come through backward() before rank 1
         flat = torch.cat([gradient.flatten() for gradient in gradients])
+        if self.sent:
+            self.sent[-1][1].wait()

@@ hidden: sends when half of the gradients are there
-            if not all(p in self.ready for p in bucket):
+            late = len(self.ready) <= len(self.parameters) // 2
+            if late or not all(p in self.ready for p in bucket):

@@ order: keeps the order of parameters()
-        if not self.agreed:
+        if False:

@@ order: each rank keeps the order that it has seen
-        dist.broadcast(order, src=0)  # every rank now holds rank 0's order

@@ waits: a nap in place of waiting
 import json
+import time

-            work.wait()  # only now flat holds the sum over the ranks
+            time.sleep(0.2)

@@ waits: looks once whether the last bucket is there
 import json
+import time

-            work.wait()  # only now flat holds the sum over the ranks
+            for _ in range(20):
+                if not work.is_completed():
+                    time.sleep(0.01)
+            # only now flat holds the sum over the ranks

@@ odd: what backward() has left out is not sent
-        for bucket in self.buckets[len(self.sent) :]:  # backward() has left these out
+        for bucket in []:  # backward() has left these out
             self.send(bucket)
-        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
+        for bucket, (flat, work) in zip(self.buckets, self.sent):

@@ odd: the new order forgets who was not there
-        order = torch.tensor(came + rest, device=device)  # (parameters,)
+        order = torch.tensor(came, device=device)  # (parameters,)

@@ accumulate: sends in every micro-batch
-        self.syncing = False

@@ accumulate: takes what no_sync() has gathered for complete
-        self.ready[parameter] = True

         to send the same buckets in the same order.
         """
+        self.ready[parameter] = True
'''
)
