/* StarPU 1.3 on the questions of strata_dispatch: empty CPU tasks, as many workers as STARPU_NCPU
 * says, in its cheaper way to submit (starpu_task_create and starpu_task_submit). Figures end in
 * the number of workers. */
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kTasks = 10000, kShared = 1024, kBatchesMax = 16 };

static starpu_data_handle_t handles[kTasks];
static double values[kTasks];

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void empty(void* buffers[], void* arg) {
  (void)buffers, (void)arg;
}

static struct starpu_codelet one = {.cpu_funcs = {empty}, .nbuffers = 1, .modes = {STARPU_RW}};
static struct starpu_codelet two = {
    .cpu_funcs = {empty}, .nbuffers = 2, .modes = {STARPU_RW, STARPU_R}};

static void submit(struct starpu_codelet* codelet, int first, int second) {
  struct starpu_task* task = starpu_task_create();
  task->cl = codelet;
  task->handles[0] = handles[first];
  if (codelet->nbuffers == 2) task->handles[1] = handles[second];
  if (starpu_task_submit(task) != 0) {
    fprintf(stderr, "rival_starpu: a task was refused\n");
    exit(1);
  }
}

/* One batch of kTasks each; all return microseconds a task. */
static double independent(void) {
  const double begun = now_us();
  for (int i = 0; i < kTasks; ++i) submit(&one, i, 0);
  starpu_task_wait_for_all();
  return (now_us() - begun) / kTasks;
}

static double chain(void) {
  const double begun = now_us();
  for (int i = 0; i < kTasks; ++i) submit(&one, 0, 0);
  starpu_task_wait_for_all();
  return (now_us() - begun) / kTasks;
}

/* The workers stand still meanwhile: submission alone. */
static double submit_one(void) {
  starpu_pause();
  const double begun = now_us();
  for (int i = 0; i < kTasks; ++i) submit(&one, i % kShared, 0);
  const double took = now_us() - begun;
  starpu_resume();
  starpu_task_wait_for_all();
  return took / kTasks;
}

static double submit_two(void) {
  starpu_pause();
  const double begun = now_us();
  for (int i = 0; i < kTasks; ++i) {
    const int pair = i % (kShared / 2);
    submit(&two, pair, kShared / 2 + pair);
  }
  const double took = now_us() - begun;
  starpu_resume();
  starpu_task_wait_for_all();
  return took / kTasks;
}

static double round_trips(void) {
  const int trips = kTasks / 20;
  const double begun = now_us();
  for (int i = 0; i < trips; ++i) {
    submit(&one, 0, 0);
    starpu_task_wait_for_all();
  }
  return (now_us() - begun) / trips;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure(const char* name, const char* unit, double (*batch)(void), int batches) {
  double took[kBatchesMax];
  batch();
  for (int i = 0; i < batches; ++i) took[i] = batch();
  qsort(took, (size_t)batches, sizeof took[0], ascending);
  printf("rival.starpu.%s.%u %.6g %s\n", name, starpu_cpu_worker_get_count(), took[batches / 2],
         unit);
  fflush(stdout);
}

int main(void) {
  const int batches = getenv("STRATA_BENCH_QUICK") ? 3 : 7;
  if (starpu_init(NULL) != 0) {
    fprintf(stderr, "rival_starpu: starpu_init failed\n");
    return 1;
  }
  for (int i = 0; i < kTasks; ++i) {
    starpu_variable_data_register(&handles[i], STARPU_MAIN_RAM, (uintptr_t)&values[i],
                                  sizeof values[i]);
  }
  measure("submit", "us/task", submit_one, batches);
  measure("submit.two", "us/task", submit_two, batches);
  measure("chain", "us/task", chain, batches);
  measure("independent", "us/task", independent, batches);
  measure("round_trip", "us", round_trips, batches);
  for (int i = 0; i < kTasks; ++i) starpu_data_unregister(handles[i]);
  starpu_shutdown();
  return 0;
}
