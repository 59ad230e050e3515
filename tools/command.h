// What the commands share: how one is added to the program, and its exit codes. The main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>

namespace strata::tools {

// What the chosen command does; gives the exit status.
using Action = std::function<int()>;

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;        // what was asked for did not come out well
inline constexpr int kExitBadArguments = 2;  // nothing was done

// Each adds its command; when that is chosen, *action becomes what it does.
void add_version_command(CLI::App& app, Action* action);
void add_info_command(CLI::App& app, Action* action);
void add_doctor_command(CLI::App& app, Action* action);
void add_child_server_command(CLI::App& app, Action* action);
void add_demo_command(CLI::App& app, Action* action);
void add_key_command(CLI::App& app, Action* action);
void add_serve_command(CLI::App& app, Action* action);

// `strata runner`, which `strata serve` starts and help does not show: its exit status, or none
// where the arguments ask for something else.
std::optional<int> run_if_runner(int argc, char** argv);

}  // namespace strata::tools
