# Writes OUT, a header with the name that git gives to SOURCE, and only where that changed.
# Not from a clone, or without git: an empty name.
find_program(GIT git)
set(name "")
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --tags
    OUTPUT_VARIABLE name OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(name "")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT
"// The name of the commit that this was built from. Written by the build.
#pragma once

inline constexpr char kGitDescribe[] = \"${name}\";
")
