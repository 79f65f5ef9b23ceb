def leave(full, left, send):
    if left < len(full) and full[left]:
        send(left)
