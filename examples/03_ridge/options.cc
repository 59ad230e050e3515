#include "options.h"

#include "problem.h"

namespace ridge {

void add_options(CLI::App& app, Options* options) {
  app.add_option("--data", options->data, "Digits: gzip of lines of 64 pixels and the digit")
      ->default_str("the digits that come with the program");
  app.add_option("--workers", options->workers, "Child processes")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--tile", options->tile, "Rows and columns of a tile")
      ->check(CLI::Range(kTileMin, kTileMax))
      ->capture_default_str();
  app.add_option("--start", options->start, "How children start: fork, or inline (no processes)")
      ->check(CLI::IsMember({"fork", "inline"}))
      ->capture_default_str();
  app.add_flag("--augment,!--no-augment", options->augment,
               "Each image also moved by one pixel to each side: five times the samples");
  app.add_option("--timeline", options->timeline,
                 "Writes there what every process did, and when: for ui.perfetto.dev")
      ->type_name("FILE");
}

}  // namespace ridge
