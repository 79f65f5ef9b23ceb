def leave(full, left, send):
    if all(full[left:]):
        for number in reversed(range(left, len(full))):
            send(number)
