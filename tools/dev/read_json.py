#!/usr/bin/python3
"""Answers questions about what `tessera ... -o json` prints, read from stdin.

usage: read_json.py idle-workers        prints how many workers are idle
       read_json.py job-result LIMIT    says how a job ended; exits 1 unless it succeeded with a
                                        last validation loss below LIMIT
       read_json.py step                prints the job's last completed step
       read_json.py same-losses FILE    says whether the losses of the job in FILE, and those of the
                                        one on stdin, are the same; exits 1 unless they are, after
                                        as well as before the step from which the second went on
"""
import json
import math
import re
import sys


def get(message, *names):
    """A field by its JSON or its proto name; None if absent."""
    for name in names:
        if isinstance(message, dict) and name in message:
            return message[name]
    return None


def idle_workers(answer):
    workers = answer if isinstance(answer, list) else get(answer, "workers") or []
    return sum(str(get(worker, "state")).endswith("IDLE") for worker in workers)


def job_result(job, limit):
    """(whether it is good, a sentence)."""
    status = get(job, "status") or {}
    state = str(get(status, "state")).replace("JOB_STATE_", "")
    if state != "SUCCEEDED":
        error = get(get(status, "error"), "message")
        return False, "The job is %s%s" % (state, ": " + error if error else ".")
    first = get(get(status, "progress"), "firstValidationLoss", "first_validation_loss")
    loss = get(get(status, "progress"), "validationLoss", "validation_loss")
    if loss is None:
        return False, "The job reports no validation loss."
    loss = float(loss)
    good = math.isfinite(loss) and loss < limit
    return good, "The job succeeded; validation loss%s to %.4f nats per byte, %s the limit of %g." % (
        "" if first is None else " from %.4f" % float(first),
        loss,
        "below" if good else "not below",
        limit,
    )


def losses(job):
    progress = get(get(job, "status"), "progress")
    curve = get(progress, "lossCurve", "loss_curve") or []
    return {int(point["step"]): float(point["loss"]) for point in curve}


def suspended_after(job):
    """The step at which it was suspended last, by its conditions."""
    text = json.dumps(get(get(job, "status"), "conditions") or [])
    steps = re.findall(r"after step (\d+)", text)
    return int(steps[-1]) if steps else 0


def same_losses(whole, parted):
    """(whether all common losses are equal, lines that show it)."""
    a, b = losses(whole), losses(parted)
    cut = suspended_after(parted)
    common = sorted(set(a) & set(b))
    lines = ["  step   undisturbed   suspended after step %d, killed, resumed" % cut]
    near = [s for s in common if s <= cut][-3:] + [s for s in common if s > cut][:3]
    lines += ["%6d   %.9f   %.9f" % (step, a[step], b[step]) for step in near]
    equal = all(a[step] == b[step] for step in common)
    good = equal and bool(cut) and any(s <= cut for s in common) and any(s > cut for s in common)
    lines.append("%d losses, %s" % (len(common), "all equal to the last bit" if good else "NOT the same"))
    return good, "\n".join(lines)


def main():
    answer = json.load(sys.stdin)
    if sys.argv[1] == "idle-workers":
        print(idle_workers(answer))
    elif sys.argv[1] == "step":
        print(get(get(get(answer, "status"), "progress"), "step") or 0)
    elif sys.argv[1] == "same-losses":
        with open(sys.argv[2]) as file:
            good, text = same_losses(json.load(file), answer)
        print(text)
        sys.exit(0 if good else 1)
    else:
        good, sentence = job_result(answer, float(sys.argv[2]))
        print(sentence)
        sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
