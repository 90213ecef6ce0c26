// What Windows and the compilers need in a DLL next to its own code. Otherwise MinGW's start files and its C library
// bring it, of which zig builds 500 files first, in ways that need the whole zig to run.

using Function = void (*)();

// Of the universal C runtime: what functions a DLL wants to have called when it is unloaded.
struct AtEnd {
  Function *first, *last, *end;
};
extern "C" int _initialize_onexit_table(AtEnd *);
extern "C" int _register_onexit_function(AtEnd *, Function);
extern "C" int _execute_onexit_table(AtEnd *);
extern "C" int __stdio_common_vsprintf(unsigned long long options, char *buffer, decltype(sizeof 0) size,
                                       const char *format, void *locale, __builtin_va_list arguments);
extern "C" int __stdio_common_vsscanf(unsigned long long options, const char *text, decltype(sizeof 0) size,
                                      const char *format, void *locale, __builtin_va_list arguments);

// A linker sorts sections of one name by what is behind the $, and what compilers emit comes between these.
#define IN(name) __attribute__((section(name), used))

namespace {

AtEnd at_end;
IN(".CRT$XCA") const Function before_constructors = nullptr;
IN(".CRT$XCZ") const Function behind_constructors = nullptr;
IN(".tls") char before_thread_locals = 0;
IN(".tls$ZZZ") char behind_thread_locals = 0;
const Function no_callback = nullptr;

}  // namespace

extern "C" {

unsigned _tls_index;  // which of the thread's blocks is this DLL's: Windows fills it in

// IMAGE_TLS_DIRECTORY64 of the PE format; the linker looks for this name.
extern const struct {
  const char *first, *end;
  unsigned *index;
  const Function *callbacks;
  unsigned zeros, alignment;
} _tls_used = {&before_thread_locals, &behind_thread_locals, &_tls_index, &no_callback, 0, 0};

int atexit(Function function) { return _register_onexit_function(&at_end, function); }

int vsnprintf(char *buffer, decltype(sizeof 0) size, const char *format, __builtin_va_list arguments) {
  const unsigned long long as_in_c99 = 2;  // _CRT_INTERNAL_PRINTF_STANDARD_SNPRINTF_BEHAVIOR
  return __stdio_common_vsprintf(as_in_c99, buffer, size, format, nullptr, arguments);
}

int sscanf(const char *text, const char *format, ...) {
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  const int read = __stdio_common_vsscanf(0, text, ~decltype(sizeof 0){}, format, nullptr, arguments);
  __builtin_va_end(arguments);
  return read;
}

// Compilers call it before a function whose frame has more than a page: touches each page of it, as Windows grows a
// stack by one page at a time. rax: the bytes of the frame. It leaves every register as it is.
__attribute__((naked)) void ___chkstk_ms() {
  __asm__(
      "pushq %rcx\n\t"
      "pushq %rax\n\t"
      "leaq 24(%rsp), %rcx\n"
      "1:\tcmpq $4096, %rax\n\t"
      "jb 2f\n\t"
      "subq $4096, %rcx\n\t"
      "testq %rcx, (%rcx)\n\t"
      "subq $4096, %rax\n\t"
      "jmp 1b\n"
      "2:\tsubq %rax, %rcx\n\t"
      "testq %rcx, (%rcx)\n\t"
      "popq %rax\n\t"
      "popq %rcx\n\t"
      "retq");
}

// The entry point: 1 when the DLL is loaded into a process, 0 when it is unloaded or the process ends.
int DllMainCRTStartup(void *, unsigned reason, void *) {
  if (reason == 1) {
    if (_initialize_onexit_table(&at_end) != 0) {
      return 0;
    }
    for (const Function *volatile at = &before_constructors; at != &behind_constructors; at = at + 1) {
      if (*at != nullptr) {
        (*at)();
      }
    }
  } else if (reason == 0) {
    _execute_onexit_table(&at_end);
  }
  return 1;
}
}
