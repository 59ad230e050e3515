#include "pod_options.h"

namespace ridge_pod {

void add_options(CLI::App& app, Options* options) {
  ridge::add_options(app, options);
  app.get_option("--workers")->description("Child processes of each L3 Worker");
  app.add_option("--hosts", options->hosts, "L3 Workers below the L4 Worker")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--panel", options->panel, "Tiles of a panel: what one task of an L3 gets")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

}  // namespace ridge_pod
