// nvcuda.so: the side of nvcuda.dll that is Linux, and calls the driver of this machine.
//
// All calls run in one thread of its own: wine's has too small a stack for the driver. So all threads
// of the Windows program share one current context.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "driver_functions.h"

typedef unsigned long long word;
typedef int (*driver_function)(word, word, word, word, word, word, word, word, word, word, word,
                               word);

#define NAME(name) #name,
static const char *const names[] = {DRIVER_FUNCTIONS(NAME)};

enum { NOT_FOUND = 500, STACK = 256 << 20 };  // CUDA_ERROR_NOT_FOUND

static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct driver_call *waiting;
static int started;

static void answer(struct driver_call *call) {
  static void *driver;
  static driver_function functions[DRIVER_FUNCTION_COUNT];
  if (driver == NULL) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
  }
  driver_function *function = &functions[call->function];
  if (*function == NULL && driver != NULL) {
    *function = (driver_function)dlsym(driver, names[call->function]);
  }
  const word *a = call->arguments;
  call->result = *function == NULL ? NOT_FOUND
                                   : (*function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7],
                                                 a[8], a[9], a[10], a[11]);
}

static _Noreturn void serve(void) {
  pthread_mutex_lock(&lock);
  for (;;) {
    while (waiting == NULL) {
      pthread_cond_wait(&changed, &lock);
    }
    answer(waiting);
    waiting = NULL;
    pthread_cond_broadcast(&changed);
  }
}

static void *run(void *unused) {
  (void)unused;
  serve();
}

static void start(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // wine's handlers know nothing of this thread
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  started = pthread_create(&thread, &attributes, run, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int call_driver(void *argument) {
  pthread_mutex_lock(&one_call);
  if (!started) {
    start();
  }
  pthread_mutex_lock(&lock);
  waiting = argument;
  pthread_cond_broadcast(&changed);
  while (started && waiting != NULL) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&one_call);
  return 0;
}

__attribute__((visibility("default"))) int (*const __wine_unix_call_funcs[])(void *) = {call_driver};
