"""What grades any assignment; it names none of them. See assignment.py for one."""
