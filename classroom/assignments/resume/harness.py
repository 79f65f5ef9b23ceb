"""One life of a training: it ends well, or a rank dies where the plan says."""

from lives import live

if __name__ == "__main__":
    live("resume.py")
