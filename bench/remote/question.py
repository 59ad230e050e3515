"""What does a Worker on another host cost? README.md explains the figures."""
import os

from harness import Goal, Program, Question, Ratio

RATIOS = [
    Ratio("ratio.tcp.awake", "strata.tcp.awake", "limit.tcp.awake", Goal("<=", 1.3)),
    Ratio("ratio.tcp.asleep", "strata.tcp.asleep", "limit.tcp.asleep", Goal("<=", 1.3)),
    Ratio("ratio.tcp.rested", "strata.tcp.rested", "limit.tcp.rested"),
    Ratio("ratio.tls.awake", "strata.tls.awake", "limit.tls.awake", Goal("<=", 1.3)),
    Ratio("ratio.tls.asleep", "strata.tls.asleep", "limit.tls.asleep", Goal("<=", 1.3)),
    Ratio("ratio.tls.rested", "strata.tls.rested", "limit.tls.rested"),
    Ratio("ratio.register", "strata.tcp.register", "limit.tcp.awake"),
]
RIVALS = [
    Ratio("ratio.tcp.rate", "strata.tcp.rate", "grpc.rate", Goal(">=", 6)),
    Ratio("ratio.tls.rate", "strata.tls.rate", "grpc.rate", Goal(">=", 3)),
]
GOALS = {
    "strata.tcp.ready": Goal("<", 40),
}


def question(programs_folder, cpus):
    """`programs_folder` is where the build has put the programs of this folder."""
    del cpus
    built = lambda name, *args: [os.path.join(programs_folder, name), *args]
    programs = [Program("limit_remote", built("limit_remote")),
                Program("limit_remote dlopen",
                        built("limit_remote", os.path.join(programs_folder, "libbench_far.so")))]
    for words in (["clear"], ["tls"], ["clear", "blocking"], ["tls", "blocking"]):
        programs.append(Program(" ".join(["strata_remote", *words]),
                                built("strata_remote", *words)))
    ratios = list(RATIOS)
    if os.path.exists(built("rival_grpc")[0]):
        programs.append(Program("rival_grpc", built("rival_grpc")))
        ratios += RIVALS
    return Question("remote", programs, ratios=ratios, goals=GOALS)
