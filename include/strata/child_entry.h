// child_entry: lets a program be the child server of its own Workers, which StartMethod::kExec (and
// kAuto where a fork is not safe) starts as a fresh process.
//
//   int main(int argc, char** argv) {
//     strata::child_entry(argc, argv);  // first of all
//     ...
//
// In the program that the user starts it returns at once. In a child server it serves and never
// returns: what follows in main, and what exit() would run, does not happen there. Static
// initialisers do. Without it children come from `strata child-server`, which does not have the
// program's functions, so LocalFunction is refused. Main thread.
#pragma once

#include "strata/export.h"

namespace strata {

STRATA_PUBLIC void child_entry(int argc, char** argv);

}  // namespace strata
