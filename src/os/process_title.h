// What `ps` shows for this process: the text takes the place of its arguments. For processes that
// are started for Strata alone, since who else holds argv would read it there. The main thread,
// while the process has one.
#pragma once

#include <string_view>

namespace strata::os {

// From now on set_process_title() writes over these arguments, up to the first that does not lie
// right behind the one before.
void own_arguments(int argc, char** argv);

// Cut to the room that the arguments have. Does nothing without own_arguments(); so also in a
// process that was forked from the user's program.
void set_process_title(std::string_view title);

}  // namespace strata::os
