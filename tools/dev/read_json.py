#!/usr/bin/python3
"""Answers questions about what `tessera ... -o json` prints, read from stdin.

usage: read_json.py idle-workers        prints how many workers are idle
       read_json.py job-result LIMIT    says how a job ended; exits 1 unless it succeeded with a
                                        last validation loss below LIMIT
"""
import json
import math
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


def main():
    answer = json.load(sys.stdin)
    if sys.argv[1] == "idle-workers":
        print(idle_workers(answer))
    else:
        good, sentence = job_result(answer, float(sys.argv[2]))
        print(sentence)
        sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
