"""bench/harness.py and the questions that use it, on small programs of this test's own."""
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
sys.path[:0] = [BENCH, os.path.join(BENCH, "dispatch")]

import harness  # noqa: E402
import question as dispatch  # noqa: E402
from harness import Goal, Pace, Program, Question, Ratio  # noqa: E402

PACE = Pace(rounds=3, program_s=30, total_s=100, settle_s=0, settle_once_s=0)


def shell(name, script):
    return Program(name, ["/bin/sh", "-c", script])


def alive(pid):
    return os.path.exists(f"/proc/{pid}")


class HarnessTest(unittest.TestCase):
    def setUp(self):
        harness.adopt_orphans()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def counting(self, name, figure, values):
        """A program that prints one of `values` each time it runs."""
        state = self.path(name)
        lines = "".join(f"{figure} {value} us\n" for value in values)
        with open(state, "w", encoding="ascii") as file:
            file.write(lines)
        return shell(name, f"head -n 1 {state}; sed -i 1d {state}")

    def run_main(self, question, pace=PACE, json_path=None):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = harness.main(question, pace, {}, json_path)
        return status, out.getvalue().splitlines()


class Parsing(unittest.TestCase):
    def test_figures_and_comments_are_told_apart(self):
        figures, comments = harness.parse("# two cores\na.b 1.5 us\n\nc 2e3 us/task\n")
        self.assertEqual(figures, [("a.b", 1.5, "us"), ("c", 2000.0, "us/task")])
        self.assertEqual(comments, ["# two cores"])

    def test_any_other_line_is_refused(self):
        for text in ("a 1", "a one us", "a 1 us more", "a nan us", "a inf us"):
            with self.subTest(text), self.assertRaises(ValueError):
                harness.parse(text)

    def test_busy_time_counts_all_but_idle_and_io_wait(self):
        seconds = harness.busy_seconds("cpu  100 10 1 99999 88888 20 2 300 7 7\n")
        self.assertAlmostEqual(seconds, 433 / harness.TICKS_A_SECOND)


class Goals(unittest.TestCase):
    def test_a_bound_itself_is_reached_unless_the_goal_is_below_it(self):
        self.assertTrue(Goal("<=", 2).reached(2))
        self.assertFalse(Goal("<=", 2).reached(2.1))
        self.assertFalse(Goal("<", 2).reached(2))
        self.assertTrue(Goal("<", 2).reached(1.9))
        self.assertTrue(Goal(">=", 2).reached(2))
        self.assertFalse(Goal(">=", 2).reached(1.9))

    def test_verdict_names_the_goal(self):
        self.assertEqual(Goal("<=", 0.25).verdict(0.2), "goal <= 0.25 reached")
        self.assertEqual(Goal("<=", 0.25).verdict(0.3), "goal <= 0.25 MISSED")


class Measuring(HarnessTest):
    def test_a_figure_is_the_median_over_the_rounds(self):
        question = Question("q", [self.counting("p", "f", [3, 1, 2])])
        status, lines = self.run_main(question)
        self.assertEqual(status, 0)
        self.assertRegex(lines[0], r"^f 2 us  # n=3 min=1 max=3 quiet=\d$")

    def test_a_ratio_is_the_median_over_quotients_of_the_same_round(self):
        # Quotients 10, 0.1 and 2: their median is 2, while that of the medians is 2 / 4.
        question = Question(
            "q", [self.counting("a", "a", [10, 1, 2]), self.counting("b", "b", [1, 10, 1])],
            ratios=[Ratio("ratio.ab", "a", "b", Goal("<=", 1.5)), Ratio("ratio.ba", "b", "a")])
        status, lines = self.run_main(question)
        self.assertEqual(status, 0, "a goal that is missed is no failure")
        self.assertIn("ratio.ab 2 x  # goal <= 1.5 MISSED n=3 min=0.1 max=10", lines)
        self.assertIn("ratio.ba 0.5 x  # n=3 min=0.1 max=10", lines)
        self.assertIn("# goals: 0 of 1 reached; MISSED: ratio.ab", lines)

    def test_the_best_of_several_figures_is_taken_round_by_round(self):
        question = Question(
            "q", [self.counting("a", "f.1", [1, 5, 9]), self.counting("b", "f.2", [4, 2, 8])],
            best={"f": ["f.1", "f.2"]}, goals={"f": Goal("<=", 2)})
        _, lines = self.run_main(question)
        expected = r"f 2 us  # n=3 min=1 max=8 quiet=\d goal <= 2 reached"
        self.assertTrue(any(re.fullmatch(expected, line) for line in lines), lines)
        self.assertIn("# goals: 1 of 1 reached", lines)

    def test_programs_take_turns(self):
        log = self.path("log")
        programs = [shell(name, f"echo {name} >> {log}") for name in "abc"]
        self.run_main(Question("q", programs))
        with open(log, encoding="ascii") as file:
            self.assertEqual(file.read().split(), list("abcabcabc"))

    def test_a_round_that_no_longer_fits_is_not_begun(self):
        now = [0.0]

        def clock():
            now[0] += 10
            return now[0]

        pace = Pace(rounds=9, program_s=30, total_s=100, settle_s=0, settle_once_s=0)
        record = harness.measure(Question("q", [shell("p", "echo f 1 us")]), pace, {}, clock)
        self.assertLess(record.rounds, 9)
        self.assertEqual(len(record.samples["f"]), record.rounds)
        self.assertIn(f"# {record.rounds} of 9 rounds: no time for more", record.notes)

    def test_what_others_use_is_said(self):
        _, lines = self.run_main(Question("q", [shell("p", "echo f 1 us; echo '# a remark'")]))
        self.assertEqual(lines.count("# a remark"), 1)
        self.assertTrue(any(line.startswith("# other processes used ") for line in lines), lines)

    def test_json_holds_samples_medians_ratios_and_goals(self):
        question = Question(
            "q", [self.counting("a", "a", [10, 1, 2]), self.counting("b", "b", [1, 10, 1])],
            ratios=[Ratio("ratio.ab", "a", "b", Goal("<=", 1.5))], goals={"c": Goal("<", 1)})
        self.run_main(question, json_path=self.path("json"))
        with open(self.path("json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual([s["value"] for s in found["samples"]["a"]], [10, 1, 2])
        self.assertEqual([s["turn"] for s in found["samples"]["a"]], [0, 1, 2])
        self.assertEqual(found["units"]["a"], "us")
        self.assertEqual(found["medians"], {"a": 2, "b": 1})
        self.assertEqual(found["ratios"]["ratio.ab"]["samples"], [10, 0.1, 2])
        self.assertEqual(found["ratios"]["ratio.ab"]["median"], 2)
        self.assertEqual(found["goals"]["ratio.ab"]["reached"], False)
        self.assertIsNone(found["goals"]["c"]["reached"])
        self.assertEqual(found["failures"], [])


class Failing(HarnessTest):
    def test_a_failed_program_is_a_line_and_the_others_go_on(self):
        question = Question("q", [shell("bad", "echo f 1 us; echo why >&2; exit 3"),
                                  shell("good", "echo g 1 us")], goals={"f": Goal("<=", 1)})
        status, lines = self.run_main(question)
        self.assertEqual(status, 1)
        self.assertEqual(lines[-2:], ["# FAILED bad in rounds 1, 2, 3: exit status 3", "#   why"])
        self.assertTrue(lines[0].startswith("g 1 us"), "figures of a failed program do not count")
        self.assertIn("# goals: 0 of 1 reached; not measured: f", lines)

    def failure_of(self, program, limit_s=30):
        return harness.execute(program, limit_s, {}).failure

    def test_each_failure_says_why(self):
        missing = Program("p", [self.path("nothing")])
        self.assertEqual(self.failure_of(missing), "No such file or directory")
        aborted = self.failure_of(shell("p", "kill -ABRT $$"))
        self.assertEqual(aborted, "ended by signal 6 (SIGABRT)")
        self.assertIsNone(self.failure_of(shell("p", "true")))

    def test_an_unreadable_line_is_a_failure(self):
        status, lines = self.run_main(Question("q", [shell("p", "echo hello")]))
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "# FAILED p in rounds 1, 2, 3: not a figure: 'hello'")

    def pids_in(self, name, count):
        with open(self.path(name), encoding="ascii") as file:
            pids = [int(word) for word in file.read().split()]
        self.assertEqual(len(pids), count)
        return pids

    def test_a_program_past_its_time_is_ended_with_all_it_started(self):
        # One process in the program's group, one in a session of its own.
        script = (f"sleep 600 & echo $! > {self.path('pids')}; "
                  f"setsid sh -c 'echo $$ >> {self.path('pids')}; exec sleep 600' & "
                  f"while [ $(wc -l < {self.path('pids')}) -lt 2 ]; do :; done; sleep 600")
        failure = self.failure_of(shell("p", script), limit_s=3)
        self.assertEqual(failure, "ended after 3 s, its time limit")
        for pid in self.pids_in("pids", 2):
            self.assertFalse(alive(pid))

    def test_a_process_left_behind_is_ended_and_a_failure(self):
        script = f"setsid sleep 600 & echo $! > {self.path('pids')}"
        self.assertEqual(self.failure_of(shell("p", script)), "left 1 process behind")
        self.assertFalse(alive(self.pids_in("pids", 1)[0]))


class Dispatch(unittest.TestCase):
    def setUp(self):
        self.question = dispatch.question("/programs", 2)

    def test_every_figure_that_is_compared_is_explained(self):
        with open(os.path.join(BENCH, "README.md"), encoding="utf-8") as file:
            explained = set(re.findall(r"`([a-z0-9_.]+)`", file.read()))
        names = set(self.question.goals)
        for ratio in self.question.ratios:
            names |= {ratio.name, ratio.over, ratio.under}
        self.assertEqual(names - explained, set())

    def test_every_group_of_the_program_is_run(self):
        with open(os.path.join(BENCH, "dispatch", "strata_dispatch.cc"), encoding="utf-8") as file:
            groups = re.findall(r'group == "([a-z0-9.]+)"', file.read())
        run = [p.command[1] for p in self.question.programs if "strata_dispatch" in p.command[0]]
        self.assertEqual(run, groups)

    def test_one_core_has_one_rival_worker(self):
        counts = [p.env["STARPU_NCPU"] for p in dispatch.question("/programs", 1).programs
                  if "STARPU_NCPU" in p.env]
        self.assertEqual(counts, ["1"])


if __name__ == "__main__":
    unittest.main()
