def leave(full, left, send):
    for number, is_full in enumerate(full):
        if not is_full:
            break
        send(number)
