def leave(full, left, send):
    if left == len(full) or not full[left]:
        return
    send(left)
    leave(full, left + 1, send)
