"""How many instructions an engine step takes with 10 and with 10,000 workers, by callgrind.

    sched_instructions.py PROGRAM [VALGRIND]

Counts of the same program are the same each time, so more than RATIO_MAX of them is a failure.
"""
import re
import subprocess
import sys

FEW, MANY = 10, 10_000
STEPS = 5_000
RATIO_MAX = 1.3


def instructions(program, valgrind, kind, workers):
    """A step's, with the completion and the submission around it."""
    done = subprocess.run(
        [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
         "--toggle-collect=strata_sched_steps", program, kind, str(workers), str(STEPS)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    collected = re.search(r"Collected\s*:\s*(\d+)", done.stdout)
    if done.returncode != 0 or not collected or int(collected[1]) == 0:
        sys.exit(f"{done.stdout}\nsched_instructions: exit status {done.returncode}, no count")
    return int(collected[1]) / STEPS


def main():
    program, valgrind = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "valgrind"
    failed = False
    for kind in ("any", "directed"):
        few, many = (instructions(program, valgrind, kind, workers) for workers in (FEW, MANY))
        print(f"{kind}: {few:.0f} instructions a step with {FEW} workers, {many:.0f} with {MANY}: "
              f"{many / few:.3f}, at most {RATIO_MAX}")
        failed = failed or many / few > RATIO_MAX
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
