"""Runs the programs of a question in interleaved rounds and says what their figures are.

A program prints `name value unit` lines (and `#` comments), exits 0 and leaves no process behind;
anything else is a failure, which is reported and does not stop the others. Each program runs once
a round, so that drift of the machine hits all of them alike. A figure is the median over the
rounds; a ratio is the median of the quotients of figures of the same round.
"""
import ctypes
import dataclasses
import json
import math
import os
import platform
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

QUIET_CORES = 0.2  # what others may use for a sample to count as taken on a quiet machine
SETTLE_STEP_S = 0.25
LINGER_S = 2.0  # for the processes of a program to end after it
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: list
    env: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Goal:
    relation: str  # "<=", "<" or ">="
    bound: float

    def reached(self, value):
        if self.relation == ">=":
            return value >= self.bound
        return value <= self.bound if self.relation == "<=" else value < self.bound

    def verdict(self, value):
        word = "reached" if self.reached(value) else "MISSED"
        return f"goal {self.relation} {self.bound:g} {word}"


@dataclasses.dataclass(frozen=True)
class Ratio:
    name: str
    over: str
    under: str
    goal: Goal | None = None


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    programs: list
    best: dict = dataclasses.field(default_factory=dict)  # figure: the figures it is the least of
    ratios: list = dataclasses.field(default_factory=list)
    goals: dict = dataclasses.field(default_factory=dict)  # figure: Goal


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long a measurement may take."""

    rounds: int
    program_s: float  # one program
    total_s: float  # everything, waiting for a quiet machine included
    settle_s: float  # of that, all waits for a quiet machine
    settle_once_s: float  # of that, one wait


@dataclasses.dataclass(frozen=True)
class Sample:
    value: float
    turn: int
    others: float  # cores that other processes used meanwhile


class Record:
    """What was measured. Figures keep the order in which they were first seen."""

    def __init__(self):
        self.samples = {}
        self.units = {}
        self.failures = {}  # (program, why): its rounds
        self.notes = {}  # an ordered set
        self.others = []
        self.rounds = 0

    def add(self, name, value, unit, turn, others):
        self.units.setdefault(name, unit)
        self.samples.setdefault(name, []).append(Sample(value, turn, others))

    def fail(self, program, why, turn):
        self.failures.setdefault((program.name, why), []).append(turn + 1)

    def failure_texts(self):
        for (name, why), rounds in self.failures.items():
            which = ", ".join(map(str, rounds))
            yield f"{name} in round{'s' if len(rounds) > 1 else ''} {which}: {why}"

    def of_turn(self, name, turn):
        values = [s.value for s in self.samples.get(name, []) if s.turn == turn]
        return statistics.median(values) if values else None

    def median(self, name):
        return statistics.median(s.value for s in self.samples[name])

    def add_best(self, best):
        """The least of several figures of a round, as a figure of its own."""
        for name, sources in best.items():
            for turn in range(self.rounds):
                values = [self.of_turn(source, turn) for source in sources]
                values = [value for value in values if value is not None]
                others = [s.others for source in sources for s in self.samples.get(source, [])
                          if s.turn == turn]
                if values:
                    unit = next(self.units[s] for s in sources if s in self.units)
                    self.add(name, min(values), unit, turn, max(others))

    def quotients(self, ratio):
        """One for each round that has both figures."""
        found = []
        for turn in range(self.rounds):
            over, under = self.of_turn(ratio.over, turn), self.of_turn(ratio.under, turn)
            if over is not None and under:
                found.append(over / under)
        return found


def parse(text):
    """Of a program's output: [(name, value, unit)], [comment]. ValueError for any other line."""
    figures, comments = [], []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            comments.append(line)
        elif len(words) == 3:
            value = float(words[1])
            if not math.isfinite(value):
                raise ValueError(f"not a number: {line!r}")
            figures.append((words[0], value, words[2]))
        elif words:
            raise ValueError(f"not a figure: {line!r}")
    return figures, comments


# The machine and its other users.


def busy_seconds(stat):
    """CPU time that the whole machine has used, of the text of /proc/stat; stolen time counts."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_A_SECOND


def own_seconds():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


class Others:
    """How many cores other processes use, from its making on."""

    def __init__(self):
        self.begun, self.busy, self.own = self._now()

    @staticmethod
    def _now():
        with open("/proc/stat", encoding="ascii") as file:
            return time.monotonic(), busy_seconds(file.readline()), own_seconds()

    def cores(self):
        now, busy, own = self._now()
        took = max(now - self.begun, 1e-3)
        return max(0.0, ((busy - self.busy) - (own - self.own)) / took)


def settle(limit_s):
    """Waits for a quiet machine, at most so long. Returns the seconds it took."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        others = Others()
        time.sleep(SETTLE_STEP_S)
        if others.cores() < QUIET_CORES:
            break
    return time.monotonic() - begun


# Processes.


def adopt_orphans():
    """What programs leave behind becomes a child of this process, where it is seen and ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # gone meanwhile
            if parent == os.getpid():
                found.append(int(name))
    return found


def end_orphans(grace_s):
    """Reaps the children that no program waits for. Returns how many had to be killed."""
    killed = set()
    kill_from = time.monotonic() + grace_s
    while True:
        alive = []
        for pid in children():
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    alive.append(pid)
            except ChildProcessError:
                pass
        if not alive:
            return len(killed)
        if time.monotonic() >= kill_from:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            killed.update(alive)
        time.sleep(0.01)


@dataclasses.dataclass
class Outcome:
    out: str
    failure: str | None  # why, where it failed
    stderr: str


def execute(program, limit_s, env):
    """Runs one program to its end or to its time limit; nothing of it is left afterwards."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            process = subprocess.Popen(
                program.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **env, **program.env}, start_new_session=True)
        except OSError as error:
            return Outcome("", error.strerror, "")
        ended = False
        try:
            pidfd = os.pidfd_open(process.pid)
            try:
                ended = bool(select.select([pidfd], [], [], limit_s)[0])
            finally:
                os.close(pidfd)
        finally:
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            left = end_orphans(LINGER_S)
        failure = None
        if not ended:
            failure = f"ended after {limit_s:.3g} s, its time limit"
        elif status < 0:
            failure = f"ended by signal {-status} ({signal.Signals(-status).name})"
        elif status > 0:
            failure = f"exit status {status}"
        elif left:
            failure = f"left {left} process{'es' if left > 1 else ''} behind"
        for file in (out, err):
            file.seek(0)
        return Outcome(out.read(), failure, err.read())


def measure(question, pace, env, clock=time.monotonic, say=lambda text: None):
    """All rounds that the pace has time for. `env` is for every program."""
    record = Record()
    begun = clock()
    patience = pace.settle_s
    last_round = 0.0
    for turn in range(pace.rounds):
        round_begun = clock()
        if turn and round_begun + last_round > begun + pace.total_s:
            record.notes[f"# {turn} of {pace.rounds} rounds: no time for more"] = None
            break
        say(f"round {turn + 1} of {pace.rounds}")
        record.rounds = turn + 1
        for program in question.programs:
            if patience > 0:
                patience -= settle(min(patience, pace.settle_once_s))
            left_s = begun + pace.total_s - clock()
            if left_s <= 0:
                record.fail(program, "no time left for it", turn)
                continue
            others = Others()
            outcome = execute(program, min(pace.program_s, left_s), env)
            take(record, program, outcome, turn, others.cores())
        last_round = clock() - round_begun
    record.add_best(question.best)
    return record


def take(record, program, outcome, turn, others):
    """Into the record: a failed program's figures do not count."""
    failure = outcome.failure
    if failure is None:
        try:
            figures, comments = parse(outcome.out)
            record.notes.update(dict.fromkeys(comments))
        except ValueError as error:
            failure = str(error)
    if failure is not None:
        last = [f"\n#   {line}" for line in outcome.stderr.splitlines()[-5:]]
        record.fail(program, failure + "".join(last), turn)
        return
    record.others.append(others)
    for name, value, unit in figures:
        record.add(name, value, unit, turn, others)


# What is said about it.


def spread(values):
    return f"n={len(values)} min={min(values):.6g} max={max(values):.6g}"


def judge(question, record):
    """{name: (value or None, Goal)} of everything that has a goal."""
    judged = {}
    for name, goal in question.goals.items():
        judged[name] = (record.median(name) if name in record.samples else None, goal)
    for ratio in question.ratios:
        if ratio.goal:
            values = record.quotients(ratio)
            judged[ratio.name] = (statistics.median(values) if values else None, ratio.goal)
    return judged


def report(question, record):
    """The lines for people and for scripts: figures, ratios, then comments."""
    lines = []
    for name, samples in record.samples.items():
        quiet = sum(s.others < QUIET_CORES for s in samples)
        line = (f"{name} {record.median(name):.6g} {record.units[name]}  "
                f"# {spread([s.value for s in samples])} quiet={quiet}")
        if name in question.goals:
            line += " " + question.goals[name].verdict(record.median(name))
        lines.append(line)
    for ratio in question.ratios:
        values = record.quotients(ratio)
        if values:
            value = statistics.median(values)
            goal = ratio.goal.verdict(value) + " " if ratio.goal else ""
            lines.append(f"{ratio.name} {value:.6g} x  # {goal}{spread(values)}")
    lines += record.notes
    if record.others:
        busy = sum(cores >= QUIET_CORES for cores in record.others)
        lines.append(f"# other processes used {statistics.median(record.others):.2f} cores in the "
                     f"median, {max(record.others):.2f} at most; not quiet during {busy} of "
                     f"{len(record.others)} program runs")
    judged = judge(question, record)
    missed = [n for n, (value, goal) in judged.items() if value is not None
              and not goal.reached(value)]
    unknown = [n for n, (value, _) in judged.items() if value is None]
    line = f"# goals: {len(judged) - len(missed) - len(unknown)} of {len(judged)} reached"
    line += f"; MISSED: {', '.join(missed)}" if missed else ""
    line += f"; not measured: {', '.join(unknown)}" if unknown else ""
    lines.append(line)
    lines += [f"# FAILED {text}" for text in record.failure_texts()]
    return lines


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpus": len(os.sched_getaffinity(0)), "model": model, "kernel": platform.release()}


def as_json(question, record):
    ratios = {}
    for ratio in question.ratios:
        values = record.quotients(ratio)
        if values:
            ratios[ratio.name] = {"over": ratio.over, "under": ratio.under, "samples": values,
                                  "median": statistics.median(values)}
    goals = {}
    for name, (value, goal) in judge(question, record).items():
        goals[name] = {"relation": goal.relation, "bound": goal.bound,
                       "reached": None if value is None else goal.reached(value)}
    return {
        "question": question.name,
        "machine": machine(),
        "rounds": record.rounds,
        "units": record.units,
        "medians": {name: record.median(name) for name in record.samples},
        "samples": {name: [dataclasses.asdict(s) for s in samples]
                    for name, samples in record.samples.items()},
        "ratios": ratios,
        "goals": goals,
        "others_cores": record.others,
        "failures": list(record.failure_texts()),
    }


def main(question, pace, env, json_path=None):
    """Measures, prints, and returns the exit status: 1 where a program failed."""
    adopt_orphans()
    record = measure(question, pace, env, say=lambda text: print(f"# {text}", file=sys.stderr))
    for line in report(question, record):
        print(line)
    if json_path:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump(as_json(question, record), file, indent=1)
            file.write("\n")
    return 1 if record.failures else 0
