// What ridge_pod can be told beyond what ridge can. A value; one thread parses.
#pragma once

#include "options.h"

namespace ridge_pod {

struct Options : ridge::Options {
  Options() {
    program = "ridge_pod";
    augment = true;
  }
  int hosts = 2;     // L3 Workers, each with `workers` SUB children
  size_t panel = 4;  // tiles of a panel: what one task of an L3 gets
};

// Adds those of ridge and these; as ridge::add_options.
void add_options(CLI::App& app, Options* options);

}  // namespace ridge_pod
