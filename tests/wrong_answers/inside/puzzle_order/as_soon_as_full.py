def leave(full, left, send):
    if sum(full) > left:
        if left == 0:
            leave.sent = []
        for number, is_full in enumerate(full):
            if is_full and number not in leave.sent:
                leave.sent.append(number)
                send(number)
