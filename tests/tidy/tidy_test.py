#!/usr/bin/env python3
"""Shows that each rule of tidy.py fires on a small bad tree and is silent on a good one."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cxx  # noqa: E402
import tidy  # noqa: E402

CONVENTIONS = '''# Rooms

<!-- tidy: rooms -->

| room | kind | may include | what |
| --- | --- | --- | --- |
| `base` | core | - | things |
| `graph` | core | base | more |
| `os` | driver | base | calls |
| `runtime` | driver | base, graph, os | all |

<!-- tidy: folders -->

| folder | may include | public headers | what |
| --- | --- | --- | --- |
| `include/strata` | - | all | promise |
| `sim` | base, graph | values | world |
| `examples` | - | all | shown |

<!-- tidy: exceptions -->

| file | what | reason |
| --- | --- | --- |
| `src/base/sum.cc` | `<openssl/sha.h>` | one |
'''

GOOD = {
    'docs/conventions.md': CONVENTIONS,
    'CMakeLists.txt': 'strata_room(base LINK fmt::fmt)\nstrata_room(graph LINK strata_base)\n'
                      'strata_room(runtime LINK strata_graph)\n',
    'src/base/sum.h': '// Sum: adds. Any thread.\n#pragma once\n\n#include <vector>\n\n'
                      'namespace strata::base {\nint sum(int a, int b);\n}  // strata::base\n',
    'src/base/sum.cc': '#include "base/sum.h"\n\n#include <openssl/sha.h>\n',
    'src/graph/node.cc': '#include "base/sum.h"\n#include "graph/node.h"\n'
                         '#include "strata/error.h"\n\n#include <unordered_map>\n\n'
                         'namespace strata::graph {\n'
                         'std::unordered_map<int, int> seen_;\n'
                         'bool known(int i) { return seen_.find(i) != seen_.end(); }\n'
                         '}  // namespace strata::graph\n',
    'src/graph/node.h': '// Node. Any thread.\n#pragma once\n',
    'src/os/clock.cc': '#include <time.h>\n\n#include <thread>\n',
    'src/runtime/worker.cc': '#include "graph/node.h"\n#include "strata/worker.h"\n',
    'include/strata/error.h': '// Error. Any thread.\n#pragma once\n\n#include "strata/result.h"\n',
    'sim/world.cc': '#include "graph/node.h"\n',
    'examples/01_hello.cc': '#include <strata/strata.h>\n#include "helper.h"\n',
    'tests/graph/node_test.cc': '// sleep_for (in a comment) is no sleep.\n',
}

# rule: [(path, text, words of the finding)], each alone on top of GOOD.
BAD = {
    'tables': [
        ('docs/conventions.md', CONVENTIONS.replace('`base` | core | -', '`base` | core | graph'),
         'not above'),
        ('docs/conventions.md', CONVENTIONS.replace('tidy: rooms', 'rooms'), 'no table'),
        ('docs/conventions.md', CONVENTIONS.replace('base, graph | values', 'attic | values'),
         'no room'),
        ('src/attic/old.cc', 'int x;\n', 'no row'),
    ],
    'build': [('CMakeLists.txt', 'strata_room(base)\nstrata_room(graph LINK strata_os)\n',
               'graph links os')],
    'rooms': [
        ('src/base/bad.cc', '#include "graph/node.h"\n', 'base may not include graph'),
        ('src/base/bad.cc', '#  include "runtime/deep/a.h"\n', 'may not include runtime'),
        ('src/graph/bad.cc', '#include "node.h"\n', 'names no room'),
        ('src/graph/bad.cc', '#include "../base/sum.h"\n', 'may not include ..'),
        ('src/graph/bad.cc', '#include <base/sum.h>\n', 'quoted'),
        ('include/strata/bad.h', '// Bad.\n#pragma once\n#include "base/sum.h"\n', 'may not'),
        ('sim/bad.cc', '#include "os/clock.h"\n', 'sim may not include os'),
        ('examples/02.cc', '#include "base/sum.h"\n', 'examples may not'),
    ],
    'public': [
        ('src/graph/bad.cc', '#include "strata/worker.h"\n', 'for runtime'),
        ('src/os/bad.cc', '#include <strata/strata.h>\n', 'for runtime'),
        ('sim/bad.cc', '#include "strata/run.h"\n', 'for runtime'),
        ('src/graph/bad.cc', '#include "strata/novel.h"\n', 'no public header'),
    ],
    'system': [
        ('src/graph/bad.cc', '#include <thread>\n', '<thread>'),
        ('src/base/bad.h', '// Bad.\n#pragma once\n#include <sys/socket.h>\n', '<sys/socket.h>'),
        ('src/graph/bad.cc', '#include <chrono>\n', '<chrono>'),
        ('src/graph/bad.cc', '#include <openssl/sha.h>\n', '<openssl/sha.h>'),
        ('include/strata/bad.h', '// Bad.\n#pragma once\n#include <fmt/format.h>\n', '<fmt'),
    ],
    'core-words': [
        ('src/graph/bad.cc', 'std::mutex m;\n', 'std::mutex'),
        ('src/graph/bad.cc', 'auto t = std::chrono::steady_clock::now();\n', 'std::chrono'),
        ('src/base/bad.cc', 'int x = rand();\n', 'rand'),
        ('src/base/bad.cc', 'std::uniform_int_distribution<int> d;\n', 'distribution'),
    ],
    'unordered': [
        ('src/graph/bad.cc', 'void f() {\n  for (auto& [k, v] : seen_) use(k, v);\n}\n', 'seen_'),
        ('src/graph/bad.cc', 'std::unordered_set<std::pair<int, int>> ids;\n'
         'auto i = ids.begin();\n', 'ids'),
        ('src/graph/bad.cc', 'using Ids = std::unordered_set<int>;\nvoid f(const Ids& ids) {\n'
         '  for (int id : ids) {\n  }\n}\n', 'ids'),
        ('src/graph/bad.cc', 'auto i = std::begin(node.seen_);\n', 'seen_'),
    ],
    'pointer-order': [('src/graph/bad.cc', 'std::map<const Node*, int> order;\n', 'address')],
    'namespace': [('src/graph/bad.cc', 'namespace strata::base {\n}\n', 'another room')],
    'throw': [('src/os/bad.cc', 'void f() { throw 1; }\n', 'Result')],
    'sleep': [
        ('tests/graph/bad_test.cc', 'std::this_thread::sleep_for(1s);\n', 'sleep_for'),
        ('sim/bad.cc', 'usleep(1);\n', 'usleep'),
        ('tests/graph/bad_test.cc', 'void f() { ::sleep(1); }\n', 'sleep'),
    ],
    'header': [
        ('src/base/bad.h', '#pragma once\n', 'opening comment'),
        ('tests/graph/bad.h', '// Bad.\nint x;\n', '#pragma once'),
    ],
    'size': [
        ('src/base/bad.h', '// Bad.\n#pragma once\n' + '\n' * 248 + 'int x;\n', '251 lines'),
        ('src/base/bad.cc', 'int x;\n' * 601, '601 lines'),
        ('src/base/bad.cc', '//' + 'x' * 99 + '\n', '101 columns'),
        ('scripts/bad', '#' + 'x' * 100 + '\n', '101 columns'),
    ],
    'function': [
        ('src/base/bad.cc', 'void long_one() {\n' + '  f();\n' * 69 + '}\n', 'long_one has 71'),
        ('src/base/bad.cc', 'namespace strata::base {\nBad::Bad(int a)\n    : a_{a}, b_{2} {\n'
         + '  f();\n' * 70 + '}\n}\n', 'Bad::Bad has 73'),
        ('tests/graph/bad_test.cc', 'TEST(A, Is) {\n' + '  f();\n' * 70 + '}\n', 'A.Is has 72'),
        ('tests/bad.py', 'def long_one():\n' + '    f()\n' * 70, 'long_one has 71'),
    ],
    'words': [
        ('src/base/bad.cc', '// TO' 'DO: later\n', 'TO' 'DO'),
        ('scripts/bad', '# HA' 'CK\n', 'HA' 'CK'),
        ('docs/bad.md', 'see /wo' 'rk/notes\n', 'belong'),
        ('docs/bad.md', 'https://pyp' 'i.org/simple\n', 'belong'),
    ],
    'whitespace': [
        ('src/base/bad.cc', 'int x; \n', 'trailing'),
        ('docs/bad.md', 'a\tb\n', 'tab'),
        ('CMakeLists.txt', 'strata_room(base)', 'ends'),
        ('src/base/bad.cc', 'int x;\n\n', 'ends'),
    ],
    'exceptions': [
        ('src/base/sum.cc', '#include "base/sum.h"\n', 'nothing needs'),
        ('docs/conventions.md', CONVENTIONS.replace('sha.h>` | one', 'sha.h>` |'), 'no reason'),
    ],
}


def findings(files):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            place = pathlib.Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return tidy.check(folder).findings


class Rules(unittest.TestCase):
    def test_good_tree_has_no_findings(self):
        self.assertEqual([str(f) for f in findings(GOOD)], [])

    def test_every_rule_has_a_bad_tree(self):
        self.assertEqual(set(BAD), set(tidy.RULES))

    def test_every_bad_tree_is_found_by_its_rule_at_its_place(self):
        for name, cases in BAD.items():
            for path, text, words in cases:
                with self.subTest(rule=name, path=path, words=words):
                    found = [f for f in findings(GOOD | {path: text}) if f.rule == name]
                    self.assertTrue(any(words in f.text or words in f.path for f in found),
                                    [str(f) for f in found])

    def test_what_only_looks_like_a_breach_is_none(self):
        odd = {
            'tests/graph/odd_test.cc': 'wait.sleep(3);\nworld.lead_sleep(4);\nsleep_for(w, 5);\n',
            'src/graph/odd_inl.h': '// Odd.\n#pragma once\n' + 'int x;\n' * 400,
            'src/graph/odd.cc': '// std::mutex, throw\nauto s = "std::chrono rand() throw";\n',
        }
        self.assertEqual([str(f) for f in findings(GOOD | odd)], [])

    def test_a_row_of_exceptions_silences_exactly_its_own_finding(self):
        text = CONVENTIONS + '| `src/graph/odd.cc` | `<thread>` | shown |\n'
        odd = {'docs/conventions.md': text, 'src/graph/odd.cc': '#include <thread>\n'}
        self.assertEqual(findings(GOOD | odd), [])
        odd['src/graph/odd.cc'] += '#include <mutex>\n'
        self.assertEqual([f.rule for f in findings(GOOD | odd)], ['system'])


class Cxx(unittest.TestCase):
    def test_comments_and_literals_are_blanked_in_place(self):
        text = 'a; // b {\nc("d } \\" {", \'{\', R"(} {)"); /* {\n{ */ e = 1\'000;\n'
        code = cxx.strip(text)
        self.assertEqual(len(code), len(text))
        self.assertEqual(code.count('\n'), text.count('\n'))
        self.assertNotIn('{', code)
        self.assertIn("1'000", code)
        self.assertEqual(code.index('e ='), text.index('e ='))

    def test_functions_are_found_with_their_lines(self):
        text = '''namespace a {
struct B : C {
  B() : x_{1}, y_(2) {}
  int get() const { return x_; }
};
enum class D : int { kOne, kTwo };
template <class T>
  requires std::is_integral_v<T>
T twice(T t) {
  auto f = [](int i) {
    if (i) {
      return 1;
    }
    return 2;
  };
  return f(t);
}
constexpr int kTable[] = {1, 2};
const std::map<int, int> kMap = {{1, 2}, {3, 4}};
struct stat look(int fd) {
  return {};
}
bool operator==(const B& a, const B& b) { return true; }
extern "C" {
void entry(void) {
}
}
}  // namespace a
TEST(Room, IsTidy) {
  f();
}
'''
        found = cxx.functions(cxx.strip_preprocessor(cxx.strip(text)))
        self.assertEqual([(n, b - a + 1) for n, a, b in found],
                         [('B', 1), ('get', 1), ('twice', 11), ('look', 3), ('operator==', 1),
                          ('entry', 2), ('Room.IsTidy', 3)])

    def test_loops_over_ordered_containers_are_not_taken_for_unordered_ones(self):
        code = 'std::unordered_map<int, std::vector<int>> a_;\nstd::vector<int> b_;\n' \
               'for (int i : b_) f(i);\nfor (int i : ordered(a_)) f(i);\n' \
               'for (i = 0; i < 3; ++i) f();\n'
        names = cxx.unordered_names(code)
        self.assertEqual(names, {'a_'})
        self.assertEqual([n for _, n in cxx.iterations(code) if n in names], [])


if __name__ == '__main__':
    unittest.main()
