#include <cstdio>
#include <memory>
#include <string>

#include "tools/command.h"
#include "transport/socket/key_ring.h"

namespace strata::tools {
namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "strata: %s\n", error.message().c_str());
  return kExitFailed;
}

int make(const std::string& file) {
  const Result<std::string> id = transport::create_key_file(file);
  if (!id) return fail(id.error());
  std::printf("%s\n", id->c_str());
  return kExitOk;
}

int show(const std::string& file) {
  const Result<transport::KeyRing> ring = transport::KeyRing::read_files({file});
  if (!ring) return fail(ring.error());
  for (const transport::ClusterKey& key : ring->keys()) std::printf("%s\n", key.id.c_str());
  return kExitOk;
}

}  // namespace

void add_key_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "key", "Makes the key of a cluster, and shows which one a file holds, never its secret.");
  auto file = std::make_shared<std::string>();
  CLI::App* const make_it =
      command->add_subcommand("new", "Makes FILE with a new key, readable by its owner alone.");
  make_it->add_option("FILE", *file, "A file that is not there yet.")->required();
  make_it->callback([action, file] { *action = [file] { return make(*file); }; });
  CLI::App* const show_it = command->add_subcommand("show", "Prints the id of each key in FILE.");
  show_it->add_option("FILE", *file, "A key file of this user's, with mode 0600.")->required();
  show_it->callback([action, file] { *action = [file] { return show(*file); }; });
  command->require_subcommand(1);
  command->footer(
      "Who has the key may run code as the user of every daemon that takes it: copy it as you "
      "would "
      "a private key. Both commands print ids, which are no secret.\n\n"
      "Exit codes: 0 done, 1 the file cannot be made or used, 2 bad arguments.\n"
      "Example: strata key new cluster.key");
}

}  // namespace strata::tools
