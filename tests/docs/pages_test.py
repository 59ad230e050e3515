#!/usr/bin/env python3
"""The checks of this folder fire: each is given what it must find."""
import pathlib
import sys
import tempfile
import unittest

import examples
import headers
import pages
import reference_test

ENTRY = '''
What it does.

**Synopsis**

    int f();

**Arguments**

None.

**Result**

A number.

**Not guaranteed**

- Much.

**Example**

```cpp
f();
```
'''


class Pages(unittest.TestCase):
    def test_a_text_block_belongs_to_the_program_right_above_it(self):
        blocks = pages.blocks_of('p', '```cpp\na\n```\n\n```text\nb\n```\n\n```cpp\nc\n```\n'
                                      'words\n```text\nd\n```\n')
        self.assertEqual([(b.number, b.line, b.text) for b in blocks],
                         [(1, 2, 'b\n'), (2, 10, None)])

    def test_links_and_anchors_are_read_outside_of_code(self):
        markdown = '# A `b`, c\n[x](y.md#z) `[no](n)`\n```\n# not\n[no](n)\n```\n'
        self.assertEqual(pages.links_of(markdown), ['y.md#z'])
        self.assertEqual(pages.anchors_of(markdown), {'a-b-c'})


class Shape(unittest.TestCase):
    def faults(self, text):
        return list(reference_test.shape_faults('f', text))

    def test_a_whole_entry_is_taken(self):
        self.assertEqual(self.faults(ENTRY), [])

    def test_a_part_that_is_missing_empty_or_in_another_place_is_found(self):
        for old, new in (('**Result**\n\nA number.\n', ''), ('- Much.\n', ''),
                         ('What it does.\n', ''), ('    int f();', 'int f();'),
                         ('```cpp', '```'), ('**Arguments**', '**Parameters**'),
                         ('**Arguments**\n\nNone.\n\n**Result**', '**Result**\n\n**Arguments**')):
            self.assertTrue(self.faults(ENTRY.replace(old, new)), old)


class Headers(unittest.TestCase):
    def names(self, code):
        return sorted(headers.names_in(code))

    def test_public_members_of_all_kinds_are_found(self):
        self.assertEqual(self.names('''
            namespace strata {
            namespace detail { int hidden(); }
            class Later;
            enum class E : uint8_t { kA = 1, kB };
            template <class T> requires(sizeof(T) > 1) class C final : public B {
             public:
              explicit C(int x) : x_{x}, y_(0) {}
              ~C();
              C& operator=(const C&) = delete;
              static constexpr size_t kMax = 4;
              [[nodiscard]] Result<std::pair<int, T>> get(int i = f()) const { return {x_, i}; }
              struct Inner { int field[2]; double other = {}; };
              template <class U> U as() const;
             private:
              int x_;
              void secret();
            };
            inline C<int> make() { return C<int>(1); }
            inline int C<int>::get(int) { return 1; }
            inline constexpr E FIRST = E::kA;
            using Alias = std::variant<int, double>;
            template <> struct Of<int> { static constexpr int value = 1; };
            }'''), sorted(['E', 'E::kA', 'E::kB', 'C', 'C::kMax', 'C::get', 'C::Inner',
                           'C::Inner::field', 'C::Inner::other', 'C::as', 'make', 'FIRST',
                           'Alias']))


class Examples(unittest.TestCase):
    def test_each_kind_of_block_becomes_what_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            root, out = pathlib.Path(folder, 'root'), pathlib.Path(folder, 'out')
            for name in ('guide', 'reference'):
                (root / 'docs' / name).mkdir(parents=True)
            (root / 'docs/reference/README.md').write_text(
                '<!-- names: examples -->\n\n| n | t | w |\n| --- | --- | --- |\n'
                '| `x` | `int` | |\n| `fn` | `void fn(int)` | |\n', encoding='utf-8')
            (root / 'docs/guide/one.md').write_text(
                '```cpp\nint main() {}\n```\n```text\nout\n```\n'
                '```cpp\n// kernel.cc: words\nSTRATA_EXPORT(f);\n```\n'
                '```cpp\n#include <cmath>\nstatic void f() {}\n```\n```cpp\nx = 1;\n```\n',
                encoding='utf-8')
            argv, sys.argv = sys.argv, ['', str(root), str(out)]
            try:
                examples.main()
            finally:
                sys.argv = argv
            listed = (out / 'examples.cmake').read_text(encoding='utf-8')
            self.assertIn('PROGRAMS guide/one/program_1)', listed)
            self.assertIn('OBJECTS guide/one/kernel)', listed)
            shown = out / 'programs/guide/one/program_1.txt'
            self.assertEqual(shown.read_text(encoding='utf-8'), 'out\n')
            made = (out / 'examples_0.cc').read_text(encoding='utf-8')
            for part in ('extern int x;', 'void fn(int);', '#include <cmath>',
                         'namespace guide_one_3 {', 'guide_one_4() {'):
                self.assertIn(part, made)


if __name__ == '__main__':
    unittest.main()
