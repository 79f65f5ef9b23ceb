# %% wrong: as soon as full
def leave(full, left, send):
    if sum(full) > left:
        if left == 0:
            leave.sent = []
        for number, is_full in enumerate(full):
            if is_full and number not in leave.sent:
                leave.sent.append(number)
                send(number)


# %% wrong: one at a time
def leave(full, left, send):
    if left < len(full) and full[left]:
        send(left)


# %% wrong: when all are full
def leave(full, left, send):
    if all(full):
        for number in range(left, len(full)):
            send(number)


# %% right: up to the first gap
def leave(full, left, send):
    until = [*full, False].index(False)
    for number in range(left, until):
        send(number)
