"""What do chips cost? Programs, comparisons and goals; README.md explains them."""
import os

from harness import Goal, Program, Question, Ratio

RATIOS = [
    Ratio("ratio.map.warm", "strata.map.warm", "limit.memcpy", Goal(">=", 0.95)),
    Ratio("ratio.copy", "strata.copy", "limit.memcpy"),
]
GOALS = {
    "strata.map.copied_bytes": Goal("<=", 0),
    "strata.map.device_bytes": Goal("<=", 0),
    "strata.map.mappings": Goal("<=", 1),
}


def question(programs_folder, cpus):
    """`programs_folder` is where the build has put the programs of this folder."""
    del cpus
    program = Program("strata_chips", [os.path.join(programs_folder, "strata_chips")])
    return Question("chips", [program], ratios=RATIOS, goals=GOALS)
