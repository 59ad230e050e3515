#!/usr/bin/env python3
"""That the fuzzers can find, and find nothing: the canary and a decoder without a bounds check are
found, and each target runs briefly on two cores. Skipped where there is no clang."""
import concurrent.futures
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = 20_000  # of each target: half a minute on two cores for all
LIMIT_S = 600  # of one target, which a core of its own needs for none
LENGTH_FAULT = 21  # a length that is not compared with the bytes left: src/wire/codec.cc


def load_fuzz():
    loader = importlib.machinery.SourceFileLoader("fuzz", str(ROOT / "scripts" / "fuzz"))
    spec = importlib.util.spec_from_loader("fuzz", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


fuzz = load_fuzz()


class Fuzzers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fuzz.build()
        folder = tempfile.TemporaryDirectory(prefix="test-fuzz-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def target(self, name, purpose):
        target = fuzz.Target(name, self.folder / purpose, self.folder / f"{purpose}-finds")
        target.seed()
        return target

    def test_the_canary_is_found(self):
        target = self.target("canary", "canary")
        said = target.fuzz(LIMIT_S, 2_000_000)
        self.assertTrue(target.found, "a read beyond the input was not found")
        self.assertIn("heap-buffer-overflow", said)
        self.assertIn("test_canary", said)

    def test_a_decoder_without_a_bounds_check_is_found(self):
        target = self.target("task", "fault")
        said = target.fuzz(LIMIT_S, 2_000_000, fault=LENGTH_FAULT)
        self.assertTrue(target.found, "fault 21 was not found")
        self.assertIn("AddressSanitizer", said)

    def test_what_finds_the_fault_is_no_find_without_it(self):
        target = self.target("task", "again")
        target.fuzz(LIMIT_S, 2_000_000, fault=LENGTH_FAULT)
        self.assertTrue(target.found)
        done = fuzz.run([target.program, *target.found], stderr=fuzz.subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])

    def test_each_target_finds_nothing_in_a_short_run(self):
        names = fuzz.all_targets()
        cores = min(2, len(os.sched_getaffinity(0)))
        begin = time.monotonic()

        def one(name):
            target = self.target(name, "short")
            return target, target.fuzz(LIMIT_S, INPUTS), *target.edges()

        with concurrent.futures.ThreadPoolExecutor(cores) as pool:
            done = list(pool.map(one, names))
        fuzz.head()
        for target, said, reached, total, _ in done:
            fuzz.report(target, reached, total)
            self.assertFalse(target.found, said[-4000:])
            self.assertGreaterEqual(target.inputs, INPUTS, target.name)
            self.assertGreater(reached, total / 2, f"{target.name}: the mutator reaches little")
        print(f"{len(names)} targets in {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    missing = fuzz.missing_tools()
    if missing:
        print(f"skipped: there is no {', '.join(missing)}, so no decoder is fuzzed here; "
              "scripts/packages install check")
        sys.exit(fuzz.SKIPPED)
    unittest.main(verbosity=2)
