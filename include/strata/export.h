/* STRATA_PUBLIC: what libstrata exports. Everything without it stays inside the library: the rooms
 * are compiled with hidden visibility. Plain C, no code. */
#pragma once

#define STRATA_PUBLIC __attribute__((visibility("default")))
