// The two macros that pass an Error on. Result itself is public: strata/result.h.
#pragma once

#include "strata/result.h"

#define STRATA_CONCAT_INNER_(a, b) a##b
#define STRATA_CONCAT_(a, b) STRATA_CONCAT_INNER_(a, b)

// STRATA_TRY(expr): returns its Error from this function, else goes on.
#define STRATA_TRY(expr)                                              \
  do {                                                                \
    if (auto strata_try_result_ = (expr); !strata_try_result_.ok()) { \
      return std::move(strata_try_result_).error();                   \
    }                                                                 \
  } while (false)

// STRATA_ASSIGN(auto x, expr): returns its Error from this function, else binds the value.
#define STRATA_ASSIGN(lhs, expr) STRATA_ASSIGN_(STRATA_CONCAT_(strata_r_, __LINE__), lhs, expr)
#define STRATA_ASSIGN_(tmp, lhs, expr)          \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()
