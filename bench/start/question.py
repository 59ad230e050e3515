"""What does it cost to start children, and to find a death? README.md explains the figures."""
import os

from harness import Goal, Program, Question, Ratio

RATIOS = [
    Ratio("ratio.init.fork", "strata.init.fork", "limit.start.fork"),
    Ratio("ratio.init.exec", "strata.init.exec", "limit.start.exec"),
    Ratio("ratio.death", "strata.death", "limit.death"),
]
GOALS = {
    "strata.init.fork": Goal("<", 60),
    "strata.init.exec": Goal("<", 150),
    "strata.death": Goal("<", 5),
    "strata.death.below": Goal("<", 5),
}


def question(programs_folder, cpus):
    """`programs_folder` is where the build has put the programs of this folder."""
    del cpus
    built = lambda name, *args: [os.path.join(programs_folder, name), *args]
    programs = [Program("limit_start", built("limit_start"))]
    programs += [Program(f"strata_start {group}", built("strata_start", group))
                 for group in ("fork", "exec", "death")]
    return Question("start", programs, ratios=RATIOS, goals=GOALS)
