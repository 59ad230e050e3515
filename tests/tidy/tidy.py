#!/usr/bin/env python3
"""Checks the rules of docs/conventions.md that a program can check.

  tidy.py [--root FOLDER] [--rules]

Prints `path:line: [rule] what is wrong` for each finding and exits 1 where there is one. Each
rule is a function below, marked @rule; tidy_test.py shows that each one fires.
"""

import argparse
import ast
import os
import pathlib
import re
import sys

import cxx

HEADER_LINES_MAX = 250
SOURCE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

CONVENTIONS = 'docs/conventions.md'
SKIPPED_FOLDERS = re.compile(r'^(\.git|\.cache|build.*|__pycache__)$')
CXX_SUFFIXES = ('.h', '.cc', '.c', '.cpp', '.hpp', '.cu')
CODE_SUFFIXES = CXX_SUFFIXES + ('.py', '.cmake', '.sh')

VALUE_HEADERS = frozenset(
    'error result types tensor inline_vector task_args task_ref call callable callable_handle '
    'chip_usage formats output timeouts worker_spec remote_worker_spec version export child_entry '
    'start_report'.split())
HANDLE_HEADERS = frozenset('worker inner orchestrator run buffer chip strata signals'.split())

# What a core may take from the standard library; everything else needs a row of exceptions.
CORE_HEADERS = frozenset(
    'algorithm any array atomic bit bitset cassert cerrno cfloat charconv cinttypes climits cmath '
    'compare concepts coroutine cstddef cstdint cstdio cstdlib cstring deque exception expected '
    'forward_list functional initializer_list ios iosfwd istream iterator limits list map memory '
    'memory_resource new numbers numeric optional ostream queue ranges ratio set source_location '
    'span sstream stack stdexcept string string_view system_error tuple type_traits typeindex '
    'typeinfo unordered_map unordered_set utility variant vector version fmt/core.h fmt/format.h '
    'fmt/ranges.h'.split())
CORE_WORDS = re.compile(
    r'\bstd::(?:this_thread|j?thread|(?:\w+_)?mutex|condition_variable\w*|chrono|future|promise'
    r'|async|counting_semaphore|binary_semaphore|latch|barrier|random_device|mt19937\w*'
    r'|\w+_distribution)\b'
    r'|\b(?:clock_gettime|gettimeofday|nanosleep|usleep|pthread_\w+|rand|srand|getenv)\s*\(')
SLEEPS = re.compile(
    r'\bthis_thread::sleep_\w+'
    r'|(?<![\w.>:])(?:::)?(?:(?:clock_)?nanosleep|usleep|sleep)\s*\(')

# Written in parts, so that this file does not find itself.
WORK_MARKS = re.compile(r'\b(' + '|'.join(['TO' 'DO', 'FIX' 'ME', 'XX' 'X', 'HA' 'CK']) + r')\b')
BANNED = re.compile(
    '|'.join([r'(?<![\w.}])/wo' r'rk/', r'(?<![\w.}])/ro' r'ot/', r'(?<![\w.}])/ho' r'me/\w',
              r'\bpyp' r'i\.org', r'\bpython' r'hosted\.org', r'\bnpm' r'js\.(?:org|com)',
              r'\bcrates' r'\.io', r'\b(?:deb|security)\.deb' r'ian\.org',
              r'\bproxy\.gol' r'ang\.org', r'\bdock' r'er\.io', r'\bgh' r'cr\.io',
              r'\bqu' r'ay\.io', r'\bconan' r'\.io',
              r'\bana' r'conda\.org']),
    re.IGNORECASE)

RULES = {}


def rule(function):
    RULES[function.__name__.removeprefix('check_').replace('_', '-')] = function
    return function


class Finding:
    def __init__(self, name, path, line, text):
        self.rule, self.path, self.line, self.text = name, path, line, text

    def __str__(self):
        return f'{self.path}:{self.line}: [{self.rule}] {self.text}'


class File:
    """One text file; `code` has comments and literals blanked."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split('\n')
        parts = path.split('/')
        self.folder = parts[0]
        self.room = parts[1] if self.folder == 'src' and len(parts) > 2 else None
        self.suffix = os.path.splitext(path)[1]
        self.is_cxx = self.suffix in CXX_SUFFIXES
        self.is_header = self.suffix in ('.h', '.hpp')
        self._code = None

    @property
    def code(self):
        if self._code is None:
            self._code = cxx.strip(self.text)
        return self._code

    def line_of(self, place):
        return self.text.count('\n', 0, place) + 1

    def includes(self):
        """(line, header, quoted) of every #include."""
        code = cxx.strip(self.text, keep_strings=True)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', code, re.M):
            line = code.count('\n', 0, match.start()) + 1
            yield line, match.group(1) or match.group(2), match.group(1) is not None


class Tree:
    """The repository, its tables, and which exceptions were needed."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []
        self.files = [File(path, text) for path, text in self._read()]
        self.by_path = {file.path: file for file in self.files}
        self.rooms, self.folders, self.exceptions = {}, {}, {}
        self.used = set()
        self._read_tables()

    def _read(self):
        for folder, names, files in os.walk(self.root):
            names[:] = sorted(n for n in names if not SKIPPED_FOLDERS.match(n))
            for name in sorted(files):
                path = pathlib.Path(folder, name)
                if path.is_symlink() or name == '.git':
                    continue
                data = path.read_bytes()
                if b'\0' not in data and not data.startswith(b'\x1f\x8b'):
                    text = data.decode('utf-8', errors='replace')
                    yield path.relative_to(self.root).as_posix(), text

    def add(self, name, file, line, text):
        self.findings.append(Finding(name, getattr(file, 'path', file), line, text))

    def excepted(self, file, what):
        if (file.path, what) in self.exceptions:
            self.used.add((file.path, what))
            return True
        return False

    def cores(self):
        return [f for f in self.files if f.room in self.rooms and self.rooms[f.room]['core']]

    def table(self, name):
        """(line, cells) of each row of the table below `<!-- tidy: name -->`."""
        file = self.by_path.get(CONVENTIONS)
        rows, state = [], 'before'
        for number, line in enumerate(file.lines if file else [], 1):
            if state == 'before':
                state = 'near' if line.strip() == f'<!-- tidy: {name} -->' else state
            elif line.startswith('|'):
                state = 'inside'
                rows.append((number, [cell.strip() for cell in line.strip().strip('|').split('|')]))
            elif state == 'inside':
                break
        return rows[2:]

    def _read_tables(self):
        for line, cells in self.table('rooms'):
            self.rooms[cells[0].strip('`')] = {
                'line': line, 'core': cells[1] == 'core', 'may': split_list(cells[2])}
        for line, cells in self.table('folders'):
            self.folders[cells[0].strip('`')] = {
                'line': line, 'may': split_list(cells[1]), 'public': cells[2]}
        for line, cells in self.table('exceptions'):
            key = (cells[0].strip('`'), cells[1].strip('`'))
            self.exceptions[key] = {'line': line, 'reason': cells[2] if len(cells) > 2 else ''}


def split_list(cell):
    return [] if cell == '-' else [part.strip() for part in cell.split(',')]


@rule
def check_tables(tree):
    """The tables are there; a room names only rooms above it; each room of src has a row."""
    if not tree.rooms:
        tree.add('tables', CONVENTIONS, 1, 'no table of rooms')
    above = set()
    for room, row in tree.rooms.items():
        for other in row['may']:
            if other not in above:
                tree.add('tables', CONVENTIONS, row['line'], f'{room} names {other}: not above it')
        above.add(room)
    for folder, row in tree.folders.items():
        for other in row['may']:
            if other not in tree.rooms:
                tree.add('tables', CONVENTIONS, row['line'], f'{folder} names {other}: no room')
    for room in sorted({f.room for f in tree.files if f.room}):
        if room not in tree.rooms:
            tree.add('tables', f'src/{room}', 1, f'the room {room} has no row in {CONVENTIONS}')


@rule
def check_build(tree):
    """CMakeLists.txt links a room to nothing that it may not include."""
    file = tree.by_path.get('CMakeLists.txt')
    if not file:
        return
    direct, lines = {}, {}
    for match in re.finditer(r'^strata_room\((\w+)([^)]*)\)', file.text, re.M):
        direct[match.group(1)] = re.findall(r'\bstrata_(\w+)', match.group(2))
        lines[match.group(1)] = file.line_of(match.start())

    def reached(room):
        out = set()
        for other in direct.get(room, []):
            out |= {other} | reached(other)
        return out

    for room, line in lines.items():
        allowed = set(tree.rooms.get(room, {'may': []})['may'])
        for other in sorted(reached(room) - allowed):
            tree.add('build', file, line, f'{room} links {other}, which it may not include')


def border(file):
    """What stands before a header's first '/', for a file in a room or a folder with a row."""
    if file.path.startswith('include/strata/'):
        return 'include/strata'
    return file.room if file.folder == 'src' else file.folder


@rule
def check_rooms(tree):
    """Every quoted #include of a room or of a folder with a row stays inside that row."""
    for file in tree.files:
        here = border(file)
        row = tree.rooms.get(here) if file.room else tree.folders.get(here)
        if not file.is_cxx or row is None:
            continue
        own = {here} | set(row['may'])
        for line, header, quoted in file.includes():
            first = header.split('/')[0]
            if first == 'strata':
                continue
            if not quoted and first in tree.rooms and '/' in header:
                tree.add('rooms', file, line, f'<{header}>: headers of rooms are quoted')
            elif quoted and '/' not in header and not file.path.startswith('examples/'):
                tree.add('rooms', file, line, f'"{header}" names no room: write "room/{header}"')
            elif quoted and '/' in header and first not in own and not tree.excepted(
                    file, f'"{header}"'):
                tree.add('rooms', file, line, f'{here} may not include {first} ("{header}")')


@rule
def check_public(tree):
    """Value headers from base upwards; handle headers in runtime alone."""
    for file in tree.files:
        if not file.is_cxx or not (file.room or border(file) in tree.folders):
            continue
        public = 'all' if file.room == 'runtime' else 'values'
        public = tree.folders.get(border(file), {'public': public})['public']
        for line, header, _ in file.includes():
            if not header.startswith('strata/'):
                continue
            name = header.removeprefix('strata/').removesuffix('.h')
            if name in HANDLE_HEADERS and public != 'all' and not tree.excepted(
                    file, f'"{header}"'):
                tree.add('public', file, line, f'"{header}" is for runtime and users alone')
            elif name not in HANDLE_HEADERS | VALUE_HEADERS:
                tree.add('public', file, line, f'"{header}" is no public header that tidy.py knows')


@rule
def check_system(tree):
    """Cores and public headers take only what is listed from outside."""
    public = [f for f in tree.files if f.path.startswith('include/strata/')]
    for file in tree.cores() + public:
        allowed = CORE_HEADERS
        if file in public:
            allowed = {h for h in CORE_HEADERS if not h.startswith('fmt/')}
            allowed |= {'stddef.h', 'stdint.h'}  # call.h is C
        for line, header, quoted in file.includes():
            if not quoted and header not in allowed and not tree.excepted(file, f'<{header}>'):
                tree.add('system', file, line, f'<{header}> is refused here; see Exceptions')


@rule
def check_core_words(tree):
    """No clock, thread, std distribution or environment in a core, however it was included."""
    for file in tree.cores():
        for match in CORE_WORDS.finditer(file.code):
            word = match.group(0).rstrip('( ')
            if not tree.excepted(file, word):
                tree.add('core-words', file, file.line_of(match.start()), f'{word} in a core')


@rule
def check_unordered(tree):
    """No iteration over unordered containers in cores: its order is no one's choice."""
    members = {}
    for file in tree.cores():
        names = {n for n in cxx.unordered_names(file.code) if n.endswith('_')}
        members.setdefault(file.room, set()).update(names)
    for file in tree.cores():
        names = members[file.room] | cxx.unordered_names(file.code)
        for place, name in cxx.iterations(file.code):
            if name in names:
                line = file.line_of(place)
                tree.add('unordered', file, line, f'iterates over the unordered {name}')


@rule
def check_pointer_order(tree):
    """No std::map or std::set by address in cores: addresses differ from run to run."""
    for file in tree.cores():
        for match in re.finditer(r'\bstd::(?:multi)?(?:map|set)\s*<\s*(?:const\s+)?[\w:]+\s*\*',
                                 file.code):
            tree.add('pointer-order', file, file.line_of(match.start()), 'ordered by address')


@rule
def check_namespace(tree):
    """Files of src/<room> open strata, strata::<room> or an unnamed namespace inside them."""
    for file in tree.files:
        if not file.room or not file.is_cxx:
            continue
        for match in re.finditer(r'^namespace\s+(strata[\w:]*)\s*\{', file.code, re.M):
            name = match.group(1)
            own = f'strata::{file.room}'
            if name not in ('strata', own) and not name.startswith(own + '::'):
                tree.add('namespace', file, file.line_of(match.start()), f'{name} is another room')


@rule
def check_throw(tree):
    """Our code throws nothing."""
    for file in tree.files:
        if file.room and file.is_cxx:
            for match in re.finditer(r'\bthrow\b', file.code):
                tree.add('throw', file, file.line_of(match.start()), 'return a Result instead')


@rule
def check_sleep(tree):
    """No test waits by sleeping."""
    for file in tree.files:
        if file.folder not in ('tests', 'sim') or not file.is_cxx:
            continue
        for match in SLEEPS.finditer(file.code):
            word = match.group(0).rstrip('( ')
            if not tree.excepted(file, word):
                tree.add('sleep', file, file.line_of(match.start()), f'{word} in a test')


@rule
def check_header(tree):
    """Headers open with a comment, then #pragma once."""
    for file in tree.files:
        if not file.is_header:
            continue
        if not re.match(r'(//|/\*) ?\S', file.text):
            tree.add('header', file, 1, 'no opening comment: what it is, what not, which thread')
        if len(re.findall(r'^#pragma once$', file.code, re.M)) != 1:
            tree.add('header', file, 1, 'no #pragma once')


@rule
def check_size(tree):
    """Lines of a file, and columns."""
    for file in tree.files:
        if file.suffix not in CODE_SUFFIXES and file.folder not in ('scripts', '.ci'):
            continue
        # A file x_inl.h holds the bodies of x.h's templates: a source in all but name.
        short = file.is_header and not file.path.endswith('_inl.h')
        limit = HEADER_LINES_MAX if short else SOURCE_LINES_MAX
        count = len(file.lines) - 1
        if count > limit and not tree.excepted(file, 'size'):
            tree.add('size', file, count, f'{count} lines, at most {limit}')
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMNS_MAX:
                tree.add('size', file, number, f'{len(line)} columns, at most {COLUMNS_MAX}')


@rule
def check_function(tree):
    """Lines of a function, from its signature to its last brace."""
    for file in tree.files:
        if file.is_cxx:
            found = cxx.functions(cxx.strip_preprocessor(file.code))
        elif file.suffix == '.py':
            found = [(node.name, node.lineno, node.end_lineno)
                     for node in ast.walk(ast.parse(file.text))
                     if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        else:
            continue
        for name, first, last in found:
            count = last - first + 1
            if count > FUNCTION_LINES_MAX and not tree.excepted(file, name):
                text = f'{name} has {count} lines, at most {FUNCTION_LINES_MAX}'
                tree.add('function', file, first, text)


@rule
def check_words(tree):
    """No notes of work to come, no machine's path, no registry's host."""
    for file in tree.files:
        for number, line in enumerate(file.lines, 1):
            for pattern in (WORK_MARKS, BANNED):
                for match in pattern.finditer(line):
                    tree.add('words', file, number, f'"{match.group(0)}" does not belong here')


@rule
def check_whitespace(tree):
    """No trailing blanks, tabs or carriage returns; the last line ends."""
    for file in tree.files:
        if file.path == 'LICENSE' or file.suffix not in CODE_SUFFIXES + ('.txt', '.md', '.json'):
            continue
        for number, line in enumerate(file.lines, 1):
            if line != line.rstrip() or '\t' in line:
                tree.add('whitespace', file, number, 'trailing blank, tab or carriage return')
        if file.text and (not file.text.endswith('\n') or file.text.endswith('\n\n')):
            tree.add('whitespace', file, len(file.lines), 'ends with one line end')


@rule
def check_exceptions(tree):
    """Each row of exceptions has a reason and is needed. Runs last."""
    for (path, what), row in tree.exceptions.items():
        if not row['reason']:
            tree.add('exceptions', CONVENTIONS, row['line'], f'{path}: no reason')
        if (path, what) not in tree.used:
            tree.add('exceptions', CONVENTIONS, row['line'], f'{path}: nothing needs {what}')


def check(root):
    tree = Tree(root)
    for function in RULES.values():
        function(tree)
    return tree


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--root', default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument('--rules', action='store_true', help='list the rules and leave')
    args = parser.parse_args()
    if args.rules:
        for name, function in RULES.items():
            print(f'{name:14} {function.__doc__}')
        return 0
    tree = check(args.root)
    for finding in sorted(tree.findings, key=lambda f: (f.path, f.line)):
        print(finding)
    print(f'{len(tree.files)} files, {len(RULES)} rules, {len(tree.findings)} findings')
    return 1 if tree.findings or not tree.files else 0


if __name__ == '__main__':
    sys.exit(main())
