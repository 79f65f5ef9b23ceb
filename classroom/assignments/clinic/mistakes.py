"""What students get wrong in Clinic."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ goal_diagnosis: nobody to blame
> fail: not right yet
-DIAGNOSES["goal"] = {"rank": 2, "line": 22, "cause": "alone"}
+DIAGNOSES["goal"] = {"rank": None, "line": 22, "cause": "alone"}

@@ prices_diagnosis: the line where it shows
> fail: not right yet
-DIAGNOSES["prices"] = {"rank": 0, "line": 20, "cause": "unlike"}
+DIAGNOSES["prices"] = {"rank": 0, "line": 23, "cause": "unlike"}

@@ leaders_diagnosis: another cause
> fail: not right yet
-DIAGNOSES["leaders"] = {"rank": None, "line": 23, "cause": "group"}
+DIAGNOSES["leaders"] = {"rank": None, "line": 23, "cause": "order"}

@@ relay_diagnosis: no such cause
> fail: cause expected one of the list, got 'deadlock'
-DIAGNOSES["relay"] = {"rank": None, "line": 21, "cause": "circle"}
+DIAGNOSES["relay"] = {"rank": None, "line": 21, "cause": "deadlock"}

@@ score_diagnosis: one patient forgotten
> not yet: there is no DIAGNOSES['score']
-DIAGNOSES["score"] = {"rank": None, "line": 19, "cause": "mean of means"}
+other = {"rank": None, "line": 19, "cause": "mean of means"}

@@ goal_cure: rank 0 decides by its own loss
> fail: rank 0 expected
-        dist.all_reduce(loss)  # the same number on all ranks, so the same decision
+        dist.broadcast(loss, src=0)
+        loss *= dist.get_world_size()

@@ relay_cure: as if there were two ranks
-    dist.recv(recv_buf, src=(rank - 1) % world_size)
+    dist.recv(recv_buf, src=1 - rank)

@@ prices_cure: half as precise on all ranks
> fail: rank 0 expected
         table = torch.empty(count, dtype=torch.float64)
+    table = table.float().double()

@@ leaders_cure: the first rank of all
> fail: rank 2 expected
-    dist.broadcast(x, src=nodes[mine][0], group=groups[mine])
+    dist.broadcast(x, src=0)

@@ overlap_cure: a nap in place of waiting
> fail: rank 0 expected
-    work.wait()  # only now total is the sum
+    time.sleep(0.3)

@@ overlap_cure: nothing travels meanwhile
> fail: rank 0 does not search while the sum travels
-    work = dist.all_reduce(total, async_op=True)  # all ranks will hold the sum
+    dist.all_reduce(total)

-    work.wait()  # only now total is the sum

@@ score_cure: weighed by the share of rank 0
> fail: rank 0 expected
-    return total[0] / total[1]
+    return total[0] / (len(hits) * dist.get_world_size())
"""
)
