"""What does the timeline cost? Programs, comparisons and goals; README.md explains them."""
import os

from harness import Goal, Program, Question, Ratio

FIGURES = ["chain", "independent", "run"]
RATIOS = [Ratio(f"ratio.trace.{name}", f"trace.{name}.on", f"trace.{name}.off")
          for name in FIGURES]
GOALS = {
    "trace.event.instant.counter": Goal("<", 50),
    "trace.event.task.counter": Goal("<", 50),
}


def question(programs_folder, cpus):
    """`programs_folder` is where the build has put the programs of this folder."""
    del cpus
    program = os.path.join(programs_folder, "strata_trace_cost")
    programs = [Program(f"strata_trace_cost {group}", [program, group])
                for group in ("event", "off", "on")]
    return Question("trace", programs, ratios=RATIOS, goals=GOALS)
