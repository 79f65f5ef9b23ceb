"""What students get wrong in Server."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ synchronous: the sum
-        mean = torch.stack([gradient for *_, gradient in pushed]).mean(0)
+        mean = torch.stack([gradient for *_, gradient in pushed]).sum(0)

@@ synchronous: the last one alone
-            self.update(self.round)
+            self.update(self.round[-1:])

@@ asynchronous: all wait in every mode
-            if self.mode != "bounded" or ahead <= self.bound:
+            if self.mode == "synchronous" or ahead <= self.bound:

@@ bounded, synchronous, leaving: asynchronous in every mode
-        self.lr, self.mode, self.bound = lr, mode, bound
+        self.lr, self.mode, self.bound = lr, "asynchronous", bound

@@ staleness: an age too much
-        self.ages += [[t, self.version - v] for t, v, _ in pushed]

         self.version += 1
+        self.ages += [[t, self.version - v] for t, v, _ in pushed]

@@ staleness: ages by the trainer's own clock
-        self.ages += [[t, self.version - v] for t, v, _ in pushed]
+        self.ages += [[t, self.clocks[t] - 1] for t, v, _ in pushed]

@@ bounded: one step too strict
-            if self.mode != "bounded" or ahead <= self.bound:
+            if self.mode != "bounded" or ahead < self.bound:

@@ bounded: one step too late
-            if self.mode != "bounded" or ahead <= self.bound:
+            if self.mode != "bounded" or ahead <= self.bound + 1:

@@ bounded: ahead of the mean
-        slowest = min(self.clocks.values(), default=0)
+        slowest = sum(self.clocks.values()) / max(1, len(self.clocks))

@@ bounded: nobody is woken
-        for trainer in list(self.waiting):
+        for trainer in list(self.waiting)[-1 if self.mode == "bounded" else 0 :]:

@@ leaving: the leaver is still slow
-            del self.clocks[trainer]
+            pass

@@ leaving: the others are not told
             del self.clocks[trainer]
-            self.go_on()

@@ snapshots: in place
-        self.weights = self.weights - self.lr * mean
+        self.weights -= self.lr * mean

@@ threads, asynchronous, bounded: no lock
         future = torch.futures.Future()
-        with self.lock:
+        if self.lock:

@@ threads, asynchronous, bounded: a lock too late
         future = torch.futures.Future()
-        with self.lock:
+        if self.lock:

                 self.update([(trainer, version, gradient)])
-            self.go_on()
+            with self.lock:
+                self.go_on()
"""
)
