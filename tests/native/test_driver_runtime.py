"""The run time over the driver does what a program expects of the CUDA runtime."""

import _ctypes
import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from driver_runtime import FLAGS, HERE, Driver, Libraries, Program, apart, build

from support.stub_library import NATIVE
from support.tools import run_program

SUCCESS, INITIALIZATION_ERROR, INSUFFICIENT_DRIVER, MISSING_CONFIGURATION = 0, 3, 35, 52
INVALID_DEVICE_FUNCTION, NO_DEVICE, INVALID_DEVICE = 98, 100, 101


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory, cuda_include: Path) -> Libraries:
    return build(tmp_path_factory.mktemp("driver"), cuda_include)


def loaded(libraries: Libraries) -> tuple[Driver, Program]:
    return Driver(libraries.driver), Program(libraries.program)


@apart
def test_a_launch_reaches_the_driver_as_it_was_written(libraries) -> None:
    driver, program = loaded(libraries)
    assert program.launch(kernel=42, blocks=9, shared=70_000, stream=0x1234, value=0x1122334455667788) == SUCCESS
    [launch] = driver.calls("launch")
    assert launch.pop("digest")
    assert launch == {
        "call": "launch",
        "kernel": "kernel_042",
        "device": 0,
        "primary": 1,
        "grid": [9, 2, 3],
        "block": [128, 1, 1],
        "shared": 70_000,
        "stream": 0x1234,
        "parameters": "8877665544332211",
    }


@apart
def test_a_fatbin_is_loaded_when_its_first_kernel_is_launched(libraries) -> None:
    driver, program = loaded(libraries)
    assert driver.calls() == []
    for kernel in (2, 4, 2, 598):
        assert program.launch(kernel) == SUCCESS
    assert driver.c.fake_loaded() == 1
    assert program.launch(3) == SUCCESS
    assert driver.c.fake_loaded() == 2
    digests = {launch["digest"] for launch in driver.calls("launch")}
    assert len(digests) == 2


@apart
def test_a_kernel_of_two_fatbins_comes_from_the_first_and_one_registered_twice_is_loaded_once(libraries) -> None:
    driver, program = loaded(libraries)
    for kernel in (0, 2):
        assert program.launch(kernel) == SUCCESS
    assert driver.c.fake_loaded() == 1
    first, second = driver.calls("launch")
    assert first["digest"] == second["digest"]


@apart
def test_every_one_of_many_kernels_is_found(libraries) -> None:
    driver, program = loaded(libraries)
    assert [program.launch(kernel) for kernel in range(600) if kernel != 7] == [SUCCESS] * 599
    assert {launch["kernel"] for launch in driver.calls("launch")} == {f"kernel_{i:03}" for i in range(600) if i != 7}


@apart
def test_streams_of_the_legacy_and_the_per_thread_kind_pass_through(libraries) -> None:
    driver, program = loaded(libraries)
    for stream in (0, 1, 2):
        assert program.launch(stream=stream) == SUCCESS
        assert program.c.cudaMemsetAsync(0x1000, 0, 8, stream) == SUCCESS
    assert [call["stream"] for call in driver.calls() if "stream" in call] == [0, 0, 1, 1, 2, 2]


@apart
def test_memory_and_the_device_are_the_drivers_business(libraries) -> None:
    driver, program = loaded(libraries)
    data = ctypes.c_void_p()
    assert program.c.cudaMallocAsync(ctypes.byref(data), 64, 5) == SUCCESS
    assert program.c.cudaMemsetAsync(data, 0x1FF, 64, 5) == SUCCESS
    assert program.c.cudaMemcpyAsync(0x2000, data, 64, 3, 5) == SUCCESS
    assert program.c.cudaFreeAsync(data, 5) == SUCCESS
    assert program.c.cudaDeviceSynchronize() == SUCCESS
    assert driver.calls() == [
        {"call": "retain", "device": 0},
        {"call": "allocate", "bytes": 64, "stream": 5},
        {"call": "fill", "to": 0x1000, "value": 255, "bytes": 64, "stream": 5},
        {"call": "copy", "to": 0x2000, "from": 0x1000, "bytes": 64, "stream": 5},
        {"call": "free", "data": 0x1000, "stream": 5},
        {"call": "synchronize"},
    ]


@apart
def test_the_context_that_the_thread_has_is_the_one_that_counts(libraries) -> None:
    driver, program = loaded(libraries)
    assert program.launch() == SUCCESS
    foreign = driver.c.fake_context(2)
    driver.c.fake_enter(foreign)
    assert program.device() == 2
    assert program.launch() == SUCCESS
    assert program.c.cudaFuncSetAttribute(program.c.program_stub(1), 8, 99_000) == SUCCESS
    launches = driver.calls()
    assert [(call["device"], call["primary"]) for call in launches if call["call"] == "launch"] == [(0, 1), (2, 0)]
    assert launches[-1] == {"call": "attribute", "kernel": "kernel_001", "attribute": 8, "value": 99_000, "device": 2}
    assert driver.c.fake_current() == foreign


@apart
def test_setting_the_device_back_gives_back_the_very_context(libraries) -> None:
    driver, program = loaded(libraries)
    foreign = driver.c.fake_context(1)
    for context, ordinal in ((foreign, 1), (None, 0)):
        driver.c.fake_enter(context)
        assert program.device() == ordinal
        assert program.c.cudaSetDevice(2) == SUCCESS
        assert driver.c.fake_current() == driver.c.fake_primary(2)
        assert program.device() == 2
        assert program.c.cudaSetDevice(ordinal) == SUCCESS
        assert driver.c.fake_current() == context
        assert program.device() == ordinal


@apart
def test_a_device_set_permanently_stays_although_another_context_was_there(libraries) -> None:
    driver, program = loaded(libraries)
    driver.c.fake_enter(driver.c.fake_context(1))
    for ordinal in (2, 0, 1, 1):
        assert program.c.cudaSetDevice(ordinal) == SUCCESS
        assert program.device() == ordinal
    assert driver.c.fake_current() == driver.c.fake_primary(1)


@apart
def test_a_primary_context_that_was_reset_is_retained_again(libraries) -> None:
    driver, program = loaded(libraries)
    assert program.launch() == SUCCESS
    driver.c.fake_reset_primary(0)
    driver.c.fake_enter(None)
    assert program.launch() == SUCCESS
    assert len(driver.calls("retain")) == 2


@apart
def test_threads_have_devices_and_errors_of_their_own(libraries) -> None:
    driver, program = loaded(libraries)
    assert program.c.cudaSetDevice(1) == SUCCESS
    assert program.c.cudaSetDevice(99) == INVALID_DEVICE
    seen: list[int] = []

    def other() -> None:
        seen.extend((program.c.cudaPeekAtLastError(), program.device(), program.launch()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [SUCCESS, 0, SUCCESS]
    assert program.device() == 1
    assert program.c.cudaPeekAtLastError() == INVALID_DEVICE
    assert program.c.cudaGetLastError() == INVALID_DEVICE
    assert program.c.cudaGetLastError() == SUCCESS
    assert [call["device"] for call in driver.calls("launch")] == [0]


@apart
def test_threads_that_are_first_at_the_same_time_load_one_copy(libraries) -> None:
    driver, program = loaded(libraries)
    barrier = threading.Barrier(8)
    codes: list[int] = []

    def first() -> None:
        barrier.wait()
        codes.append(program.launch(kernel=1))

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [SUCCESS] * 8
    assert driver.c.fake_loaded() == 1


@apart
def test_a_first_launch_may_be_captured_in_a_graph(libraries) -> None:
    driver, program = loaded(libraries)
    driver.c.fake_capture(1)
    assert program.launch() == SUCCESS
    assert driver.c.fake_capture_mode() == 0  # as the thread had it
    assert len(driver.calls("launch")) == 1


@apart
def test_errors_of_launches_are_kept_until_they_are_asked_for(libraries) -> None:
    driver, program = loaded(libraries)
    assert program.launch(kernel=7) == INVALID_DEVICE_FUNCTION  # in no fatbin
    assert program.launch(blocks=0) == 1
    for function, code in (("cuLibraryLoadData", 209), ("cuLaunchKernel", 719), ("cuCtxGetCurrent", 3)):
        driver.c.fake_fail(function.encode(), code)
        assert program.launch(2) == code, function
    driver.c.fake_fail(b"", 0)
    assert program.launch() == SUCCESS
    assert program.c.cudaGetLastError() == SUCCESS


@apart
def test_a_launch_that_was_not_configured_is_an_error(libraries) -> None:
    _, program = loaded(libraries)
    pop = getattr(program.c, "__cudaPopCallConfiguration")
    assert pop(None, None, None, None) == MISSING_CONFIGURATION
    assert program.c.cudaGetLastError() == MISSING_CONFIGURATION


@apart
def test_devices_are_counted_and_asked_by_their_ordinals(libraries) -> None:
    driver, program = loaded(libraries)
    value = ctypes.c_int()
    assert program.c.cudaGetDeviceCount(ctypes.byref(value)) == SUCCESS
    assert value.value == 3
    assert program.c.cudaDeviceGetAttribute(ctypes.byref(value), 16, 2) == SUCCESS
    assert value.value == 110
    for ordinal in (-1, 3, 1000):
        assert program.c.cudaDeviceGetAttribute(ctypes.byref(value), 16, ordinal) == INVALID_DEVICE
        assert program.c.cudaSetDevice(ordinal) == INVALID_DEVICE
    driver.c.fake_devices(0)
    assert program.c.cudaGetDeviceCount(ctypes.byref(value)) == NO_DEVICE


@apart
def test_libraries_of_other_compilers_are_loaded_and_launched(libraries) -> None:
    class Config(ctypes.Structure):
        _fields_ = [
            ("grid", ctypes.c_uint * 3),
            ("block", ctypes.c_uint * 3),
            ("shared", ctypes.c_size_t),
            ("stream", ctypes.c_void_p),
            ("attributes", ctypes.c_void_p),
            ("count", ctypes.c_uint),
        ]

    driver, program = loaded(libraries)
    fatbin = bytes.fromhex("50ed55ba0100100008") + bytes(7) + b"8 bytes."
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert program.c.cudaLibraryLoadData(ctypes.byref(library), fatbin, None, None, 0, None, None, 0) == SUCCESS
    assert program.c.cudaLibraryGetKernel(ctypes.byref(kernel), library, b"kernel_of_another") == SUCCESS
    assert program.c.cudaKernelSetAttributeForDevice(kernel, 8, 50_000, 1) == SUCCESS
    value = ctypes.c_uint64(3)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    attributes = ctypes.create_string_buffer(64)
    config = Config((4, 1, 1), (64, 1, 1), 1024, 6, ctypes.addressof(attributes), 1)
    for function in (kernel, program.c.program_stub(2)):
        assert program.c.cudaLaunchKernelExC(ctypes.byref(config), function, arguments) == SUCCESS
    calls = driver.calls()
    assert {"call": "attribute", "kernel": "kernel_of_another", "attribute": 8, "value": 50_000, "device": 1} in calls
    launches = [call for call in calls if call["call"] == "launch"]
    assert [(call["kernel"], call["grid"], call["shared"], call["stream"]) for call in launches] == [
        ("kernel_of_another", [4, 1, 1], 1024, 6),
        ("kernel_002", [4, 1, 1], 1024, 6),
    ]
    assert {"call": "attributes", "count": 1} in calls
    assert program.c.cudaLibraryUnload(library) == SUCCESS


@apart
def test_without_a_driver_the_answer_is_an_error_and_the_next_call_tries_again(libraries) -> None:
    program = Program(libraries.program)
    count = ctypes.c_int(5)
    if program.c.cudaGetDeviceCount(ctypes.byref(count)) == SUCCESS:
        return  # this machine has a driver
    assert count.value == 0
    assert program.launch() == INSUFFICIENT_DRIVER
    assert program.c.cudaGetErrorName(INSUFFICIENT_DRIVER) == b"cudaErrorInsufficientDriver"
    Driver(libraries.driver)
    assert program.launch() == SUCCESS


@apart
def test_a_driver_of_an_older_cuda(libraries) -> None:
    driver, program = loaded(libraries)
    driver.c.fake_version(12_090)
    assert program.launch() == INSUFFICIENT_DRIVER
    driver.c.fake_version(14_000)
    assert program.launch() == SUCCESS


@apart
def test_a_driver_without_a_function(libraries) -> None:
    Driver(libraries.incomplete_driver)
    assert Program(libraries.program).launch() == INSUFFICIENT_DRIVER


@apart
def test_a_driver_that_does_not_start_says_why(libraries) -> None:
    driver, program = loaded(libraries)
    for code in (100, 803, 999):
        driver.c.fake_fail(b"cuInit", code)
        assert program.launch() == code
    driver.c.fake_fail(b"", 0)
    assert program.launch() == SUCCESS


@apart
def test_a_forked_child_gets_an_error_and_its_parent_continues(libraries) -> None:
    _, program = loaded(libraries)
    assert program.launch() == SUCCESS
    child = os.fork()
    if child == 0:
        os._exit(program.launch())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == INITIALIZATION_ERROR
    assert program.launch() == SUCCESS


@apart
def test_a_child_forked_before_the_first_call_has_cuda_to_itself(libraries) -> None:
    _, program = loaded(libraries)
    child = os.fork()
    if child == 0:
        os._exit(program.launch())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == SUCCESS


class Allocated(ctypes.Structure):
    """struct mallinfo2; ``in_use`` is the memory that nobody has freed."""

    _fields_ = [(f"other{i}", ctypes.c_size_t) for i in range(7)] + [
        ("in_use", ctypes.c_size_t),
        ("free", ctypes.c_size_t),
        ("top", ctypes.c_size_t),
    ]


@apart
def test_unloading_gives_back_what_was_loaded_and_all_memory(libraries) -> None:
    driver = Driver(libraries.driver)
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Allocated
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype = ctypes.c_void_p
    launch_type = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64
    )
    dlsym = ctypes.CDLL(None).dlsym
    dlsym.restype = ctypes.c_void_p
    dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    in_use: list[int] = []
    for _ in range(8):
        handle = dlopen(str(libraries.program).encode(), 2)
        assert driver.c.fake_loaded() == 0
        launch = launch_type(dlsym(handle, b"program_launch"))
        assert [launch(kernel, 1, 0, None, 0) for kernel in (0, 1)] == [SUCCESS, SUCCESS]
        assert driver.c.fake_loaded() == 2
        _ctypes.dlclose(handle)
        assert driver.c.fake_loaded() == 0
        driver.c.fake_clear()
        in_use.append(mallinfo().in_use)
    # The fake driver keeps the names of two kernels, 608 bytes each; nothing else may stay.
    assert in_use[-1] - in_use[2] <= 5 * 2 * 640


@apart
def test_two_copies_in_one_process_do_not_meet(libraries) -> None:
    driver, program = loaded(libraries)
    other_file = libraries.program.with_name("libother.so")
    shutil.copy(libraries.program, other_file)
    other = Program(other_file)
    assert program.c.cudaSetDevice(77) == INVALID_DEVICE
    assert other.c.cudaPeekAtLastError() == SUCCESS
    assert program.c.cudaGetLastError() == INVALID_DEVICE
    assert other.c.cudaSetDevice(2) == SUCCESS
    assert program.device() == 2  # of the thread, not of the copy
    assert [program.launch(1), other.launch(1)] == [SUCCESS, SUCCESS]
    assert driver.c.fake_loaded() == 2
    assert [call["device"] for call in driver.calls("launch")] == [2, 2]


def test_nothing_of_the_run_time_is_visible_and_it_needs_the_c_library_only(tmp_path, cuda_include) -> None:
    (tmp_path / "fa_config.h").write_text("#define FA_CONFIG_CUDA 13000\n")
    sources = [HERE / "program.cpp", *sorted((NATIVE / "driver").glob("*.cpp"))]
    includes = [f"-I{tmp_path}", f"-I{NATIVE / 'driver'}", "-isystem", str(cuda_include)]
    library = tmp_path / "lib.so"
    command = ["gcc", "-shared", *FLAGS, "-fvisibility=hidden", *includes, "-Wl,--no-undefined", *map(str, sources)]
    run_program([*command, "-ldl", "-o", str(library)])  # by gcc: libstdc++ is not on its command line
    listed = run_program(["nm", "-D", "--defined-only", str(library)])
    assert {line.split()[-1] for line in listed.splitlines()} == {"program_launch", "program_stub"}


def test_names_and_texts_of_errors_are_nvidias(libraries, cuda_include, tmp_path) -> None:
    archives = sorted(cuda_include.parent.glob("**/libcudart_static.a"))
    if not archives:
        pytest.skip("needs NVIDIA's static runtime next to its headers")
    source = tmp_path / "errors.c"
    source.write_text(
        "#include <cuda_runtime_api.h>\n#include <stdio.h>\n#include <string.h>\n"
        "int main(void) { for (int i = 0; i < 1100; ++i)"
        ' printf("%d|%s|%s\\n", i, cudaGetErrorName(i), cudaGetErrorString(i)); return 0; }\n'
    )
    flags = ["-isystem", str(cuda_include), str(source)]
    program = tmp_path / "theirs"
    run_program(["gcc", *flags, str(archives[0]), "-ldl", "-lpthread", "-lrt", "-o", str(program)])
    theirs = dict(line.split("|", 1) for line in run_program([str(program)]).splitlines())
    ours = tmp_path / "ours"
    run_program(["gcc", *flags, str(libraries.program), f"-Wl,-rpath,{libraries.program.parent}", "-o", str(ours)])
    said = dict(line.split("|", 1) for line in run_program([str(ours)]).splitlines())
    unknown = "unrecognized error code|unrecognized error code"
    known = {code: words for code, words in said.items() if words != unknown}
    assert known == {code: theirs[code] for code in known}
    assert {"0", "2", "3", "35", "98", "100", "101", "209", "700", "719", "900"} <= set(known)
    assert subprocess.run([str(ours)], check=False).returncode == 0
