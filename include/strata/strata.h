// All of Strata's public C++ API.
#pragma once

#include "strata/buffer.h"
#include "strata/call.h"
#include "strata/callable.h"
#include "strata/callable_handle.h"
#include "strata/error.h"
#include "strata/export.h"
#include "strata/orchestrator.h"
#include "strata/result.h"
#include "strata/run.h"
#include "strata/task_args.h"
#include "strata/tensor.h"
#include "strata/timeouts.h"
#include "strata/types.h"
#include "strata/version.h"
#include "strata/worker.h"
#include "strata/worker_spec.h"
