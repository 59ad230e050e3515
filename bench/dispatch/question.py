"""What does dispatching a task cost? Programs, comparisons and goals; README.md explains them."""
import os

from harness import Goal, Program, Question, Ratio

GROUPS = ["submit", "run", "hops3", "chain", "independent.1", "independent.2", "idle", "wait"]
RIVAL = ["submit", "submit.two", "chain", "independent", "round_trip"]

RATIOS = [
    Ratio("ratio.submit", "strata.submit", "rival.starpu.submit", Goal("<=", 0.25)),
    Ratio("ratio.submit.two", "strata.submit", "rival.starpu.submit.two"),
    Ratio("ratio.run.asleep", "strata.run.asleep", "limit.futex.round_trip", Goal("<=", 1.3)),
    Ratio("ratio.run.asleep.rested", "strata.run.asleep", "limit.futex.round_trip.rested"),
    Ratio("ratio.hops3.asleep", "strata.hops3.asleep", "limit.futex.round_trip", Goal("<=", 3)),
    Ratio("ratio.hops3.asleep.rested", "strata.hops3.asleep", "limit.futex.round_trip.rested"),
    Ratio("ratio.chain", "strata.chain", "rival.starpu.chain", Goal("<=", 0.35)),
    Ratio("ratio.sched.time", "strata.sched.10000", "strata.sched.10", Goal("<=", 2)),
    Ratio("ratio.sched.directed.time", "strata.sched.directed.10000", "strata.sched.directed.10",
          Goal("<=", 2)),
    Ratio("ratio.potrf4096", "strata.potrf4096", "rival.openblas.potrf4096", Goal(">=", 0.9)),
    Ratio("ratio.independent.1", "strata.independent.1", "rival.starpu.independent",
          Goal("<=", 0.25)),
    Ratio("ratio.independent.2_of_1", "strata.independent.2", "strata.independent.1",
          Goal("<=", 1.1)),
    Ratio("ratio.independent.50us.speedup", "strata.independent.50us.1",
          "strata.independent.50us.2", Goal(">=", 1.7)),
]
GOALS = {
    "strata.run.awake": Goal("<=", 5),
    "strata.hops3.awake": Goal("<=", 15),
    "strata.idle_child.cpu_percent": Goal("<", 0.5),
    "strata.wait2s.cpu_percent": Goal("<", 1),
}


def blas_env():
    """For all that use OpenBLAS: its fastest kernels for this machine. Releases older than a CPU
    take it for one of 2004, whatever it can do."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return {}
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return {"OPENBLAS_CORETYPE": "SkylakeX"}
    return {"OPENBLAS_CORETYPE": "Haswell"} if {"avx2", "fma"} <= flags else {}


def question(programs_folder, cpus):
    """`programs_folder` is where the build has put the programs of this folder."""
    built = lambda name, *args: [os.path.join(programs_folder, name), *args]
    workers = sorted({1, min(2, cpus)})
    programs = [Program("limit_shm", built("limit_shm"))]
    for count in workers:
        programs.append(Program(f"rival_starpu with {count} CPU workers", built("rival_starpu"), {
            "STARPU_NCPU": str(count), "STARPU_NCUDA": "0", "STARPU_NOPENCL": "0",
            "STARPU_SILENT": "1", "STARPU_HOME": programs_folder,
        }))
    programs += [Program(f"strata_dispatch {g}", built("strata_dispatch", g)) for g in GROUPS]
    programs.append(Program("strata_sched_bench", built("strata_sched_bench")))
    programs += [Program(name, built(name), blas_env()) for name in ("rival_potrf", "strata_potrf")]
    best = {f"rival.starpu.{name}": [f"rival.starpu.{name}.{count}" for count in workers]
            for name in RIVAL}
    return Question("dispatch", programs, best, RATIOS, GOALS)
