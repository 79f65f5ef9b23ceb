"""What students get wrong in Launcher."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ variables: local rank forgotten
> fail: rank 0 expected LOCAL_RANK 0, got nothing
-    numbers = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
+    numbers = {"RANK": rank, "MASTER_PORT": port}

@@ variables: a port for each rank
> fail: rank 1 expected MASTER_PORT
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        ranks.append(subprocess.Popen(command, env=told(rank, count, free_port())))

@@ variables: nothing but the variables
> fail: rank 0 has lost the variables
-    return os.environ | words | {"MASTER_ADDR": "127.0.0.1"}
+    return words | {"MASTER_ADDR": "127.0.0.1"}

@@ variables: one string for a shell
> fail: rank 0 expected the words
 import os
+import shlex

-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        ranks.append(subprocess.Popen(
+            "exec " + shlex.join(command[:6]) + " "
+            + " ".join(command[6:]),
+            env=told(rank, count, port), shell=True))

@@ waits: back when the first is done
> fail: rank 1 was not allowed to finish its work
-        if codes == [0] * count:
+        if 0 in codes:
+            end(ranks, signal.SIGKILL, 0)

@@ fails, deaf, asked: starts them, and waits for all
> fail: launch() expected to return 3, and does not return
         ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+    for rank in ranks:
+        rank.wait()
+    return 0

@@ fails: looks at rank 0 alone
> fail: launch() expected to return 3, and does not return
-        if failed := [code for code in codes if code]:
+        if failed := [code for code in codes[:1] if code]:

@@ fails: the others are left
> fail: launch() has returned, and rank 0, rank 2 still runs
-            end(ranks, signal.SIGTERM, grace)
+            print(ranks, signal.SIGTERM, grace)

@@ fails: a signal is minus its number
> fail: launch() expected to return 137, returned -9
-            return failed[0] if failed[0] > 0 else 128 - failed[0]
+            return failed[0]

@@ fails: the code of whom we have ended
> fail: launch() expected to return 3, returned 5
             end(ranks, signal.SIGTERM, grace)
+            failed = [rank.returncode for rank in ranks]

@@ deaf: asks only
> fail: launch() expected to return 3, and does not return
-            rank.kill()

@@ deaf: no time to save
> fail: rank 1 needed 0.7 s of the 3.0 s of grace
-            end(ranks, signal.SIGTERM, grace)
+            end(ranks, signal.SIGTERM, 0.4)

@@ asked: keeps the signal to itself
> fail: rank 0 expected SIGTERM, and did not get it
-    end(ranks, caught[0], grace)
+    end(ranks, signal.SIGKILL, grace)

@@ asked: Ctrl-C is forgotten
> fail: launch() raises KeyboardInterrupt
-    for number in signal.SIGTERM, signal.SIGINT:
+    for number in [signal.SIGTERM]:

@@ asked: all went well, since it was asked for
> fail: launch() expected to return 143, returned 0
-    return 128 + caught[0]
+    return 0

@@ together: the port of old pages
> fail: job
-    with socket.socket() as probe:
-        probe.bind(("127.0.0.1", 0))  # 0: any that is free
-        return probe.getsockname()[1]
+    return 29500

@@ together: holds the port
> fail: job 1: its rank 0 cannot open port
 from torch.distributed.elastic.multiprocessing.errors import record
-
+
+kept = []
+

-    with socket.socket() as probe:
-        probe.bind(("127.0.0.1", 0))  # 0: any that is free
-        return probe.getsockname()[1]
+    probe = socket.create_server(("127.0.0.1", 0))
+    kept.append(probe)
+    return probe.getsockname()[1]

@@ output: output into a pipe
> fail: rank 0: of its 3 lines on stdout 3 are lost
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        ranks.append(subprocess.Popen(command, env=told(rank, count, port), stdout=subprocess.PIPE))
"""
)
