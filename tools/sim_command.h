// `strata sim`: one seed in detail, or many seeds in several processes and a report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace strata::tools {

// Adds the subcommand; when it is chosen, *action becomes what it does.
void add_sim_command(CLI::App& app, std::function<int()>* action);

}  // namespace strata::tools
