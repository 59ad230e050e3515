"""Reads C++ just well enough for tidy.py: blanks out comments and literals, finds functions.

Not a parser: it relies on code that clang-format has laid out.
"""

import re

_TOKEN = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|(?:u8|[uUL])?R"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"'
    r'|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def _blank(text):
    return re.sub(r'[^\n]', ' ', text)


def strip(text, keep_strings=False):
    """The code alone, every other character a space, so that places stay what they were."""

    def replace(match):
        token = match.group(0)
        if token.startswith('/'):
            return _blank(token)
        return token if keep_strings else _blank(token)

    return _TOKEN.sub(replace, text)


def strip_preprocessor(code):
    """Blanks directives and their continuation lines."""
    out, inside = [], False
    for line in code.split('\n'):
        directive = inside or line.lstrip().startswith('#')
        inside = directive and line.rstrip().endswith('\\')
        out.append('' if directive else line)
    return '\n'.join(out)


_TYPE = re.compile(r'(?:^|[\s;}>])(?:class|struct|union|enum)\b')
_NAMESPACE = re.compile(r'(?:^|\s)(?:inline\s+)?namespace\b')
_NOT_A_FUNCTION = re.compile(r'=\s*$|\breturn\s*$')


def _kind(head, parent):
    if parent == 'code':
        return 'code'
    if _NAMESPACE.search(head) or head.strip() == 'extern':
        return 'namespace'
    if _NOT_A_FUNCTION.search(head):
        return 'code'
    before_parenthesis = head.split('(')[0]
    templates = re.sub(r'<[^<>]*>', '', before_parenthesis)
    if _TYPE.search(' ' + templates) and not _returns_type(head):
        return 'type'
    return 'function' if '(' in head else 'code'


def _returns_type(head):
    """`struct stat look(int fd) {` is a function although it begins with struct."""
    match = re.search(r'\b(?:class|struct|union|enum)\s+[\w:]+[\s*&]+[\w:~]+\s*\(', head)
    return match is not None and not re.search(r'\)\s*:\s*public', head)


def functions(code):
    """(name, first line, last line) of every function; `code` is stripped of all but code."""
    found = []
    stack = []  # (kind, head, first line)
    head, first, line = '', 0, 1
    for i, c in enumerate(code):
        if c == '\n':
            line += 1
        if c == '{':
            parent = stack[-1][0] if stack else 'namespace'
            stack.append((_kind(head, 'code' if parent == 'function' else parent), head, first))
            head = ''
        elif c == '}' and stack:
            kind, opened_head, opened = stack.pop()
            rest = code[i + 1:i + 200].lstrip()
            if kind == 'function' and rest[:1] in (',', '{'):
                head, first = opened_head + '{}', opened  # a member's initialiser, not the body
                continue
            if kind == 'function':
                found.append((_name(opened_head), opened, line))
            head = ''
        elif c == ';':
            head = ''
        else:
            if not head.strip() and not c.isspace():
                head, first = '', line
            head += c
    return found


def _name(head):
    text = ' '.join(head.split())
    match = re.search(r'(TEST(?:_F|_P)?)\s*\(\s*(\w+)\s*,\s*(\w+)', text)
    if match:
        return f'{match.group(2)}.{match.group(3)}'
    match = re.search(r'([\w:~]+|operator[^\s(]+)\s*\(', text)
    return match.group(1) if match else text[:40]


_UNORDERED = re.compile(r'\b(?:std::)?unordered_(?:multi)?(?:map|set)\s*<')


def after_template(code, at):
    """The place behind the '>' that closes the '<' before `at`."""
    depth = 1
    while at < len(code) and depth > 0:
        depth += {'<': 1, '>': -1}.get(code[at], 0)
        at += 1
    return at


def unordered_names(code):
    """Names of variables and members whose type is, or is an alias of, an unordered container."""
    names, aliases = set(), set()
    for match in _UNORDERED.finditer(code):
        before = code[:match.start()].rstrip()
        alias = re.search(r'\busing\s+(\w+)\s*=$', before)
        if alias:
            aliases.add(alias.group(1))
        declared = re.match(r'[\s&*]*(\w+)', code[after_template(code, match.end()):])
        if declared:
            names.add(declared.group(1))
    for alias in aliases:
        names.update(re.findall(rf'\b{alias}\s*[&*]?\s+(\w+)', code))
    return names - {'const'}


_RANGE_FOR = re.compile(r'\bfor\s*\([^;(){}]*?[^:]:(?!:)\s*([^;{}]*?)\)\s*(?:\{|[\w(*+-])')


def iterations(code):
    """(place, name) of every loop over a named container and every begin() of one."""
    for match in _RANGE_FOR.finditer(code):
        names = re.findall(r'\w+', match.group(1))
        if names and '(' not in match.group(1):
            yield match.start(), names[-1]
    for match in re.finditer(r'\b(\w+)(?:\.|->)c?begin\s*\(', code):
        yield match.start(), match.group(1)
    for match in re.finditer(r'\bstd::(?:ranges::)?c?begin\s*\(\s*(?:\w+(?:\.|->))*(\w+)', code):
        yield match.start(), match.group(1)
