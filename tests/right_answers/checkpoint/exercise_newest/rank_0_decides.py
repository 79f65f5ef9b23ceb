class Part:
    def __init__(self, step, path):
        self.step, self.path = step, path

    def is_sound(self):
        if not zipfile.is_zipfile(self.path):
            return False
        with zipfile.ZipFile(self.path) as archive:
            return archive.testzip() is None


def newest_whole(parts):
    sound = {step for step, path in parts.items() if Part(step, path).is_sound()}
    told = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(sound, told, dst=0)
    answer = [max(step for step in parts if all(step in each for each in told or []))]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]
