# strata_flags: how all of this project is compiled. Never installed, so never the consumer's.
add_library(strata_flags INTERFACE)
target_compile_options(strata_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -fvisibility=hidden $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  -ffunction-sections -fdata-sections
  # GCC says so of every fence; the mailbox's fences are ordered by atomics beside them as well.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>
  # GCC 12 sees overlaps in std::string's operator+ that cannot be (its bug 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(STRATA_WERROR)
  target_compile_options(strata_flags INTERFACE -Werror)
endif()
# The standard library's own checks, where invariants of hot loops are checked too.
target_compile_definitions(strata_flags INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
if(STRATA_SANITIZE)
  set(sanitize -fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer)
  if(STRATA_SANITIZE MATCHES "undefined")
    # That of vptrs opens a pipe to look at an object: a process without a descriptor fails it.
    list(APPEND sanitize -fno-sanitize-recover=all -fno-sanitize=vptr)
  endif()
  target_compile_options(strata_flags INTERFACE ${sanitize})
  if(STRATA_FUZZ)
    # The mutators know the fields: comparisons need not be watched, which costs half the speed.
    target_compile_options(strata_flags INTERFACE -fno-sanitize-coverage=trace-cmp,stack-depth)
  endif()
  target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
endif()
if(STRATA_FAULTS)
  target_compile_definitions(strata_flags INTERFACE STRATA_FAULTS=1)
endif()
