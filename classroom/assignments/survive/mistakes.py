"""What students get wrong in Survive."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    '''
@@ kills: every eight steps
> fail: rank 0 expected to go on from step
-    if run.done % LOST:
+    if run.done % 8:

@@ kills: the newest by its name
> fail: rank 0 expected to go on from step
-        os.replace(folder / "new.pt", folder / "snapshot.pt")
+        os.replace(folder / "new.pt", folder / f"step_{run.done}.pt")

-    if not (folder / "snapshot.pt").exists():
+    found = sorted(folder.glob("step_*.pt"))  # step_10.pt comes before step_8.pt
+    if not found:
         return
-    kept = torch.load(folder / "snapshot.pt", weights_only=True)
+    kept = torch.load(found[-1], weights_only=True)

@@ kills: used up by loading it
> fail: rank 0 expected to go on from step
     run.done = kept["done"]
+    dist.barrier()
+    (folder / "snapshot.pt").unlink(missing_ok=True)

@@ order: the epoch begins anew
> fail: last weights: rank 0
-    run.deck.left = kept["left"]

@@ order: the next epoch is the first again
> fail: last weights: rank 0
-    run.deck.random.setstate(kept["random"])

@@ order: another generator's state
> fail: last weights: rank 0
-        kept |= {"left": run.deck.left, "random": run.deck.random.getstate()}
+        kept |= {"left": run.deck.left, "random": random.getstate()}

@@ order, optimizer, noise: the weights alone
> fail: last weights: rank 0
-    run.optimizer.load_state_dict(kept["optimizer"])
-    run.noise.set_state(kept["noises"][dist.get_rank()])
-    run.deck.left = kept["left"]
-    run.deck.random.setstate(kept["random"])

@@ optimizer: Adam forgets
> fail: last weights: rank 0
-    run.optimizer.load_state_dict(kept["optimizer"])

@@ noise: the noise begins anew
> fail: last weights: rank 0
-    run.noise.set_state(kept["noises"][dist.get_rank()])

@@ noise: the noise of rank 0 for all
> fail: last weights: rank 0
-    run.noise.set_state(kept["noises"][dist.get_rank()])
+    run.noise.set_state(kept["noises"][0])

@@ writing: written in place
> fail: rank
-        with open(folder / "new.pt", "wb") as file:
-            torch.save(kept, file)
-            file.flush()
-            os.fsync(file.fileno())  # the bytes reach the disk before the name does
-        os.replace(folder / "new.pt", folder / "snapshot.pt")
+        torch.save(kept, folder / "snapshot.pt")

@@ writing: the old one goes first
> fail: rank 0 expected to go on from step 2 or later, got 0
         kept |= {"left": run.deck.left, "random": run.deck.random.getstate()}
+        (folder / "snapshot.pt").unlink(missing_ok=True)

@@ writing: a leftover stands in the way
> fail: rank 0: FileExistsError
-        with open(folder / "new.pt", "wb") as file:
+        with open(folder / "new.pt", "xb") as file:

@@ seldom: after every step
> fail: 1 to 6 snapshots expected in 12 steps, got 12
-    if run.done % LOST:
-        return

@@ seldom: a diary beside it
> fail: 1 to 6 snapshots expected in 12 steps, got 1
     Any rank can be killed between two steps, and who writes in the midst of writing.
     """
+    if dist.get_rank() == 0:
+        (folder / "diary").write_text(f"{run.done}")
'''
)
