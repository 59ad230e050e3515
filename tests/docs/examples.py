#!/usr/bin/env python3
"""Makes C++ sources of the examples of docs/guide and docs/reference, for the compiler to judge.

  examples.py ROOT OUT

Four kinds of ```cpp blocks:
  - with `int main(`: a program, to the letter. A ```text block that follows is its stdout.
  - whose first line is `// NAME.cc`: a shared object NAME.so, beside the programs of its page.
  - with definitions at column 0: a namespace of its own.
  - all others: the body of a function of its own, with the names in scope that the table
    `<!-- names: examples -->` of docs/reference/README.md declares. They are compiled, not run.

OUT/examples.cmake lists what was made. A file whose content stays is not touched.
"""

import pathlib
import re
import sys

import pages

NAMED = re.compile(r'\A// (\w+)\.cc\b')
DEFINES = re.compile(r'^(?:static |STRATA_EXPORT|void |struct |class |extern |enum |#define )',
                     re.M)
INCLUDE = re.compile(r'^#include .*\n', re.M)
BLOCKS_A_FILE = 100


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding='utf-8') != text:
        path.write_text(text, encoding='utf-8')


def whole(root, block):
    return f'#line {block.line} "{root}/docs/{block.page}.md"\n{block.code}'


def id_of(block):
    return re.sub(r'\W', '_', f'{block.page}_{block.number}')


def scope_of(root):
    """Declarations of the names that examples may use."""
    markdown = (root / 'docs/reference/README.md').read_text(encoding='utf-8')
    declared = []
    for cells in pages.table_of(markdown, 'examples'):
        name, kind = pages.ticked(cells[0])[0], pages.ticked(cells[1])[0]
        declared.append(f'{kind};' if '(' in kind else f'extern {kind} {name};')
    return '\n'.join(declared)


def inner(root, block):
    """A block that is no whole file: without its includes, as a namespace or as a function."""
    code = INCLUDE.sub('\n', block.code)
    lines = f'#line {block.line} "{root}/docs/{block.page}.md"\n{code}'
    if DEFINES.search(block.code):
        return f'namespace {id_of(block)} {{\n{lines}}}\n'
    head = f'[[maybe_unused]] static strata::Result<void> {id_of(block)}()'
    return f'{head} {{\n{lines}return {{}};\n}}\n'


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    blocks = []
    for folder in ('guide', 'reference'):
        for page in sorted((root / 'docs' / folder).glob('*.md')):
            blocks += pages.blocks_of(f'{folder}/{page.stem}', page.read_text(encoding='utf-8'))
    lists = {'PROGRAMS': [], 'OBJECTS': [], 'SOURCES': []}
    parts = []
    for block in blocks:
        named = NAMED.match(block.code)
        if 'int main(' in block.code:
            source = out / 'programs' / block.page / f'program_{block.number}.cc'
            write(source, whole(root, block))
            if block.text is not None:
                write(source.with_suffix('.txt'), block.text)
            else:
                source.with_suffix('.txt').unlink(missing_ok=True)
            lists['PROGRAMS'].append(f'{block.page}/program_{block.number}')
        elif named:
            write(out / 'programs' / block.page / f'{named.group(1)}.cc', whole(root, block))
            lists['OBJECTS'].append(f'{block.page}/{named.group(1)}')
        else:
            parts.append(block)
    scope = scope_of(root)
    for first in range(0, len(parts), BLOCKS_A_FILE):
        some = parts[first:first + BLOCKS_A_FILE]
        includes = {'#include <strata/strata.h>\n'}
        for block in some:
            includes.update(INCLUDE.findall(block.code))
        text = (''.join(sorted(includes)) + f'namespace scope {{\n{scope}\n}}\n'
                'namespace {\nusing namespace scope;\n' +
                ''.join(inner(root, block) for block in some) + '}\n')
        write(out / f'examples_{first // BLOCKS_A_FILE}.cc', text)
        lists['SOURCES'].append(str(out / f'examples_{first // BLOCKS_A_FILE}.cc'))
    write(out / 'examples.cmake', ''.join(
        f'set(STRATA_DOC_{name} {" ".join(values)})\n' for name, values in lists.items()))


if __name__ == '__main__':
    main()
