"""Advice speaks of what the log speaks of: its package, its system, its vendor, its versions."""

import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from doctor.logs import NO_ENVIRONMENT, RECORD, carried, first, look
from flashdepot.diagnose.explain import Files, explain
from flashdepot.diagnose.explain.command import for_windows
from flashdepot.host import saved_host
from flashdepot.model.host import CudaToolkit
from flashdepot.model.target import Version

WINDOWS = saved_host(Path(__file__).parent / "records" / "windows-11-msvc-2022.json")
ABI = "undefined symbol: _ZN3c104cuda9SetDeviceEi"
IN_A_NODE = """\
Traceback (most recent call last):
  File "/c/ComfyUI/nodes.py", line 2129, in load_custom_node
  File "/c/ComfyUI/custom_nodes/ComfyUI-Spam/nodes.py", line 3, in <module>
"""


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (f"ImportError: /env/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: {ABI}", "flash-attn"),
        (f"ImportError: /env/site-packages/selective_scan_cuda.cpython-310-x86_64-linux-gnu.so: {ABI}", "mamba-ssm"),
        (f"ImportError: /env/lib/python3.11/site-packages/vllm/_C.abi3.so: {ABI}", "vllm"),
        (f"ImportError: /env/site-packages/transformer_engine/x.cpython-312.so: {ABI}", "transformer_engine"),
        (f"ImportError: /env/lib/python3.11/site-packages/natten/libnatten.so: {ABI}", "pip install natten"),
        (f"ImportError: /home/me/src/vllm/vllm/_C.abi3.so: {ABI}", "vllm"),
        ("ModuleNotFoundError: No module named 'rotary_emb'", "subdirectory=csrc/rotary"),
        ("ModuleNotFoundError: No module named 'dropout_layer_norm'", "subdirectory=csrc/layer_norm"),
    ],
)
def test_the_package_to_build_again_is_the_one_whose_module_the_line_names(log: str, command: str) -> None:
    advice = "\n".join(first(log).fix)
    assert command in advice
    assert command == "flash-attn" or "flash-attn " not in advice


def test_a_build_is_named_by_the_last_package_that_the_log_said_it_was_building() -> None:
    log = (
        "Building wheel for causal-conv1d (setup.py): started\nBuilding wheel for mamba-ssm (setup.py): started\n"
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
    )
    assert any("pip install mamba-ssm" in command for command in first(log).fix)


@pytest.mark.parametrize(
    ("begun", "package"),
    [
        ("Collecting torch-scatter\n  Getting requirements to build wheel: started\n", "torch-scatter"),
        ("Collecting flash-attn==2.8.3\n  Preparing metadata (setup.py): started\n", "flash-attn==2.8.3"),
        ("Collecting einops\nBuilding wheel for flash-attn (setup.py): started\n", "flash-attn"),
    ],
)
def test_a_build_that_finds_no_torch_is_not_torchs_own(begun: str, package: str) -> None:
    log = f"{begun}  error: subprocess-exited-with-error\nModuleNotFoundError: No module named 'torch'\n"
    assert any(f"pip install {package} --no-build-isolation" in command for command in first(log).fix)


def test_another_package_is_not_offered_a_wheel_of_flash_attn() -> None:
    cause = first(f"ImportError: /env/site-packages/vllm/_C.abi3.so: {ABI}")
    assert not any("flashdepot install" in command for command in cause.fix)
    assert any("flashdepot install" in command for command in first(f"ImportError: /x/flash_attn_2_cuda.so: {ABI}").fix)


@pytest.mark.parametrize(
    ("log", "said", "unsaid"),
    [
        (
            (
                'File "C:\\Users\\me\\venv\\Lib\\site-packages\\torch\\utils\\cpp_extension.py", line 9, in f\n'
                "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
            ),
            "set TORCH_CUDA_ARCH_LIST=",
            "export ",
        ),
        (
            "torch 2.8.0+rocm6.4 flash_attn\nRuntimeError: HIP error: invalid device function",
            "rocminfo",
            "FLASH_ATTN_CUDA_ARCHS",
        ),
    ],
)
def test_a_log_of_windows_or_of_an_amd_machine_gets_commands_of_its_own(log, said, unsaid) -> None:
    advice = "\n".join(first(log).fix)
    assert said in advice
    assert unsaid not in advice


@pytest.mark.parametrize(
    ("posix", "windows"),
    [
        ("MAX_JOBS=2 pip install x   # few", "set MAX_JOBS=2&& pip install x   # few"),
        ("export A=1 B=2; nvcc -V", "set A=1&& set B=2&& nvcc -V"),
        ('python -c "import sys; print(sys.path)"', 'python -c "import sys; print(sys.path)"'),
        ("export PATH={cuda_home}/bin:$PATH", r"set PATH={cuda_home}\bin;%PATH%"),
        ("rm -rf ~/.triton/cache", r"rmdir /s /q %USERPROFILE%\.triton/cache"),
        ("unset A_B CD; pip install 'x<2'", 'set A_B=&& set CD=&& pip install "x<2"'),
        ("nvcc -V; pip install -U x   # newer", "nvcc -V&& pip install -U x   # newer"),
        (
            "uv venv && . .venv/bin/activate && uv pip install 'x<2'",
            r'uv venv&& .venv\Scripts\activate&& uv pip install "x<2"',
        ),
        ("NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1", "set NCCL_P2P_DISABLE=1&& set NCCL_IB_DISABLE=1"),
        ("export A=$PWD/c.txt; pip install x", "export A=$PWD/c.txt; pip install x"),
        ("or use a newer release; the older one, too, has it", "or use a newer release; the older one, too, has it"),
        (
            "Update the driver; in a container, that of the host.",
            "Update the driver; in a container, that of the host.",
        ),
    ],
)
def test_settings_before_a_command_become_cmds_own(posix: str, windows: str) -> None:
    assert for_windows(posix) == windows


def test_a_machine_of_windows_gets_its_own_commands_where_the_log_names_no_system() -> None:
    log = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert [command for command in first(log).fix if command.startswith("CUDA_LAUNCH_BLOCKING=1 python")]
    advice = look(log, WINDOWS).findings[0].fix
    assert [command for command in advice if command.startswith("set CUDA_LAUNCH_BLOCKING=1&& python")]
    assert not [command for command in advice if "bin/activate" in command or "export " in command]
    ubuntu = look(f"Ubuntu 24.04\n{log}", WINDOWS).findings[0].fix
    assert not [command for command in ubuntu if command.startswith("set ")]


def test_a_toolkit_in_a_folder_with_a_blank_is_named_by_a_variable() -> None:
    advice = look("OSError: CUDA_HOME environment variable is not set.\n", WINDOWS).findings[0].fix
    assert [command for command in advice if command.startswith("set CUDA_HOME=%CUDA_PATH_V")]


def test_a_version_that_stands_in_another_line_is_named() -> None:
    log = "panicked at /root/.cargo/registry/cudarc-0.13.9/build.rs:62\nUnsupported cuda toolkit version: `12.9`."
    assert "cudarc 0.13.9" in first(log).why


def test_what_a_log_puts_into_a_command_is_one_word_for_a_shell() -> None:
    cause = first("ImportError: /x/$(touch${IFS}own).so: invalid ELF header")
    assert "head -c 120 '/x/$(touch${IFS}own).so'" in "\n".join(cause.fix)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("error: the widget broke\n", "line above"),
        ("all well\n", "cut off"),
        ("Building wheel for flash-attn\nninja: build stopped: subcommand failed.\n", "what was cut off"),
        ("   Compiling cargo-a v1\nerror: could not compile `a` (lib) due to 1 previous error\n", "cargo build -vv"),
    ],
)
def test_an_unknown_log_has_a_next_step(log: str, said: str) -> None:
    steps = "\n".join(look(log).next_steps)
    assert said in steps
    assert "flashdepot explain build.log" in steps
    assert look("nvcc fatal   : Unsupported gpu architecture 'sm_1'").next_steps == ()


def test_an_unknown_failure_of_a_run_asks_after_the_package_that_ran_and_builds_nothing() -> None:
    frame = '  File "/env/lib/python3.11/site-packages/diffusers/loader.py", line 9, in load\n'
    steps = "\n".join(look(f"Traceback (most recent call last):\n{frame}RuntimeError: flash went out\n").next_steps)
    assert "pip install -U diffusers" in steps
    assert "search the issues of diffusers for the first line above" in steps
    assert "MAX_JOBS" not in steps


def test_lines_that_only_say_that_something_failed_stand_behind_the_one_that_says_why() -> None:
    log = "ninja: build stopped: subcommand failed.\nerror: the widget broke\nERROR: Failed building wheel for flash-attn\n"
    assert [line.text for line in look(log).errors] == ["error: the widget broke"]


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (
            "$ uv pip install x\nerror: x\nModuleNotFoundError: No module named 'setuptools'\n",
            "uv pip install setuptools",
        ),
        ("bash: line 1: uv: command not found\n", "pip install uv "),
        ("bash: line 1: cargo: command not found\n", "curl --proto "),
        ("ImportError: libnccl.so.2: cannot open shared object file\n", "pip install nvidia-nccl-cu12 && export"),
        ("ImportError: libcuda.so.1: cannot open shared object file\n", "docker run "),
        ("/usr/bin/ld: cannot find -lcudnn\n", "conda install -c conda-forge cudnn "),
        ("fatal: unable to access 'https://x.y/torch/': SSL certificate problem\n", "GIT_SSL_CAINFO="),
        ("pip: OSError: [Errno 28] No space left on device: '/data/env/x.so'\n", "pip cache purge; "),
        ("pip: OSError: [Errno 30] Read-only file system: '/home/me/.cache/torch'\n", "XDG_CACHE_HOME=/tmp/cache"),
        (
            "ImportError: /data/x/flash_attn_2_cuda.so: failed to map segment from shared object\n",
            "cp -r /data/x /tmp/copy ",
        ),
        ("ModuleNotFoundError: No module named '_ctypes' (torch)\n", "uv venv "),
        ("pip: the ssl module in Python is not available.\n", "uv venv "),
        ("libtorch_cuda.so: undefined symbol: ncclGroupSimulateEnd\n", "pip install torch "),
        (
            "Running setup.py install for causal-conv1d\nNameError: name 'bare_metal_version' is not defined\n",
            "pip install 'cuda-toolkit[",
        ),
        (
            "ImportError: Requires Flash-Attention version >=2.7.1,<=2.7.4 but got 2.8.0\n",
            "flash-attn'>=2.7.1,<=2.7.4'",
        ),
    ],
)
def test_the_first_command_brings_what_the_line_names(log: str, command: str) -> None:
    fix = next(line for line in first(log).fix if not line.startswith("flashdepot "))
    assert command in fix


def make_environment(folder: Path, *, pip: bool) -> None:
    for program in ("python", *(["pip"] if pip else [])):
        (folder / "bin" / program).parent.mkdir(parents=True, exist_ok=True)
        (folder / "bin" / program).touch()


def test_uv_gets_an_environment_where_none_is(tmp_path: Path) -> None:
    log = "ModuleNotFoundError: No module named 'transformers'\n"
    fix = carried(log, "uv pip install accelerate", NO_ENVIRONMENT, tmp_path)
    assert fix.startswith("uv venv --allow-existing && . .venv/bin/activate && uv pip install transformers")


@pytest.mark.parametrize(
    ("pip", "said"),
    [
        (True, "env/bin/python -m pip install transformers"),
        (False, "uv pip install --python env/bin/python transformers"),
    ],
)
def test_what_is_installed_is_for_the_python_that_failed_and_by_the_installer_that_it_has(tmp_path, pip, said) -> None:
    make_environment(tmp_path / "env", pip=pip)
    log = "ModuleNotFoundError: No module named 'transformers'\n"
    assert carried(log, "env/bin/python train.py", NO_ENVIRONMENT, tmp_path).startswith(said)
    elsewhere = carried(log, "gone/bin/python train.py", NO_ENVIRONMENT, tmp_path)
    assert "gone" not in elsewhere


def test_a_log_without_a_command_is_of_the_portable_folders_own_python(tmp_path: Path) -> None:
    make_environment(tmp_path / "python_embeded", pip=True)
    log = "ModuleNotFoundError: No module named 'transformers'\n"
    assert carried(log, "", NO_ENVIRONMENT, tmp_path).startswith(
        "python_embeded/bin/python -m pip install transformers"
    )
    assert "python_embeded" not in carried(log, "pip install x", NO_ENVIRONMENT, tmp_path)


def test_a_variable_that_names_no_compiler_is_unset_and_the_toolkit_that_is_there_named(tmp_path: Path) -> None:
    make_environment(tmp_path / "env", pip=True)
    nvcc = tmp_path / "env/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    host = replace(NO_ENVIRONMENT, variables={"CUDA_HOME": "/gone"}, dangling=("CUDA_HOME",))
    log = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"
    fix = carried(log, "env/bin/pip install ./x --no-build-isolation", host, tmp_path)
    assert fix.startswith("unset CUDA_HOME && export CUDA_HOME=env/lib/python3.11/site-packages/nvidia/cu13 && ")


def test_the_newest_version_that_an_installer_lists_comes_first(tmp_path: Path) -> None:
    log = "ERROR: Could not find a version that satisfies the requirement triton==99 (from versions: 2.0.0, 3.1.0)\n"
    assert carried(log, "pip install triton==99", replace(NO_ENVIRONMENT, programs=None), tmp_path).startswith(
        "pip install triton==3.1.0"
    )


def test_a_setting_of_a_command_is_one_of_the_failed_command_too(tmp_path: Path) -> None:
    log = "panicked at bindgen_cuda: `nvidia-smi` failed. Ensure that you have CUDA installed\n"
    host = replace(RECORD, python=None, gpus=())
    assert carried(log, "cargo build", host, tmp_path).startswith("export CUDA_COMPUTE_CAP=80 && cargo build")


def test_a_word_of_a_log_is_not_installed_as_a_package() -> None:
    log = (
        "Collecting package metadata (repodata.json): failed\n\nNoSuchThingError: No package directories configured.\n"
    )
    assert not any("install -v" in step for step in look(log).next_steps)


def test_the_name_of_a_file_is_not_installed_as_a_package() -> None:
    log = "ERROR: Could not find a version that satisfies the requirement requirements.txt (from versions: none)\n"
    assert not [command for command in first(log).fix if re.search(r"(?<!-r )requirements\.txt", command)]


def test_an_older_gcc_is_one_that_the_system_has(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Files, "text", lambda _, path: "VERSION_CODENAME=bookworm\n" if "os-release" in path else "")
    log = "/usr/include/c++/13/bits/std_function.h(435): error: parameter packs not expanded with '...':\n"
    assert "g++-11 " in carried(log, "nvcc -c a.cu", NO_ENVIRONMENT, tmp_path)


def test_where_pins_conflict_the_command_is_said_without_them() -> None:
    log = "$ conda create -n a python=3.12 'pytorch<2.5'\nLibMambaUnsatisfiableError: Encountered problems while solving\n"
    assert first(log).fix[0].startswith("conda create -n a python 'pytorch' ")


def test_a_compiler_that_ran_out_of_memory_among_others_runs_by_itself() -> None:
    log = "$ make -j6\ng++ -c a.cpp\ncc1plus: out of memory allocating 65536 bytes after a total of 2822144 bytes\n"
    assert first(log).fix[0].startswith("make -j1 ")


def test_what_the_failed_command_sets_does_not_undo_what_is_set_before_it() -> None:
    log = "$ MAX_JOBS=8 pip install -v ./flash-attn\n  Building wheel for flash-attn (setup.py): started\ng++: fatal error: Killed signal terminated program cc1plus\n"
    fix = " ".join(first(log).fix)
    assert re.search(r"export MAX_JOBS=\d NVCC_THREADS=1 && pip install -v \./flash-attn", fix)
    assert "MAX_JOBS=8" not in fix


@pytest.mark.parametrize("jobs", ["-j 8", "-j8", "--parallel 8", "--parallel"])
def test_a_projects_own_build_runs_again_with_one_compiler(jobs: str) -> None:
    log = f"$ cd hopper && cmake --build build {jobs}\n[1/9] Building CXX object flash_attn.cpp.o\nc++: fatal error: Killed signal terminated program cc1plus\n"
    fix = first(log).fix
    assert fix[0].startswith("cmake --build build -j1 ")
    assert not [command for command in fix if command.startswith("flashdepot ") or "pip install" in command]


def test_the_build_of_a_release_is_that_releases_again() -> None:
    log = "Collecting flash_attn=={}\n  Getting requirements to build wheel: started\nModuleNotFoundError: No module named 'torch'\n"
    assert any("install flash-attn==2.5.8 --no-build" in command for command in first(log.format("2.5.8")).fix)
    assert any("install flash-attn --no-build" in command for command in first(log.replace("==", ">=").format("2")).fix)


def test_uv_is_named_once() -> None:
    log = "$ uv pip install -e .[gpu]\nerror: Failed to build `flash-attn==2.4.2`\n      ModuleNotFoundError: No module named 'torch'\n"
    fix = " ".join(first(log).fix)
    assert "uv pip install -e .[gpu] --no-build-isolation" in fix
    assert "uv uv" not in fix


def test_the_option_of_a_program_is_not_given_to_an_installer() -> None:
    log = "$ pip install x\npytorch version: 2.8.0\n\nTo use the `--use-sage-attention` feature, the `sageattention` package must be installed first.\n"
    assert not [command for cause in look(log).possible for command in cause.fix if "--use-sage" in command]


@pytest.mark.parametrize(
    ("there", "said"), [("libcudart.so.12", "pip install"), ("libcudart.so.11.0", "export LD_LIB")]
)
def test_a_library_is_in_a_folder_that_has_it_with_its_number(tmp_path: Path, there: str, said: str) -> None:
    make_environment(tmp_path / "env", pip=True)
    library = tmp_path / "env/lib/python3.11/site-packages/nvidia/cuda_runtime/lib" / there
    library.parent.mkdir(parents=True)
    library.touch()
    log = "torch\nImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
    assert (
        carried(log, "env/bin/python a.py", NO_ENVIRONMENT, tmp_path)
        .removeprefix("env/bin/python -m ")
        .startswith(said)
    )


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("ValueError: auto-awq kernels is needed to be installed. Make sure to install the auto-awq kernels of AutoAWQ_kernels", "pip uninstall -y autoawq-kernels; "),
        ("RuntimeError: Make sure to install the einops package: torch", "python -m pip install einops "),
        ("RuntimeError: --attention sage: Sage Attn is not installed", "pip uninstall -y sageattention; "),
        (IN_A_NODE + "ImportError: This modeling file requires the following packages that were not found in your environment: flash_attn. Run `pip install flash_attn`", "flashdepot install "),
        ("ModuleNotFoundError: No module named 'flash_attn.flash_attention'", "sed -i.bak 's/from flash_attn.flash_attention import "),
        ("ModuleNotFoundError: No module named 'flash_attn_3'", r"sed -i.bak 's/\bflash_attn_3\b/flash_attn_interface/g' "),
        ("creating build/wheel/UNKNOWN-0.2.0.dist-info/WHEEL\nERROR: Invalid wheel filename (wrong number of parts): 'x-0.2.0-*'", "python -m pip install -U setuptools wheel "),
        ("$ pip install a-1-AOT-b-linux_x86_64.whl\nERROR: Invalid build number: AOT in 'a-1-AOT-b-linux_x86_64'", 'python -c "import shutil, sys, zipfile; '),
        ("$ pip install deepspeed\n    AssertionError: Unable to pre-compile async_io\n", "export DS_BUILD_OPS=0 "),
        ("ModuleNotFoundError: No module named 'flash_attn'", "pip install -U flash-attn --no-build-isolation "),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_and_brought_as_it_is_to_be(log: str, command: str) -> None:
    report = look(log)
    commands = [*(fix for cause in (*report.findings, *report.possible) for fix in cause.fix), *report.next_steps]
    assert any(text.startswith(command) for text in commands)


def test_the_folder_of_a_module_is_not_installed_as_a_package_that_nobody_knows() -> None:
    log = "torch\nImportError: /env/lib/python3.11/site-packages/my_ops/decoder.so: undefined symbol: _ZN2lm5ngram6ConfigC1Ev"
    assert not [fix for fix in first(log).fix if re.search(r"install (?:\S+ )*my[-_]ops", fix)]


def test_a_sentence_is_not_given_an_environment(tmp_path: Path) -> None:
    log = "pip: error: Connection refused (os error 111)\nerror: client error (Connect): tcp connect error: connection refused\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        report = explain(io.BytesIO(log.encode()), NO_ENVIRONMENT, "uv pip install x", Files(here=True))
    assert not [fix for cause in report.findings for fix in cause.fix if "&& without" in fix]


@pytest.mark.parametrize(
    ("bounds", "release"), [(">=3.13", "3.13"), ("<3.12,>=3.8", "3.11"), ("==3.14.*", "3.14"), ("", "3.12")]
)
def test_another_python_is_one_that_the_line_allows(bounds: str, release: str) -> None:
    log = f"ERROR: Package 'x' requires a different Python: 3.7.1 not in '{bounds}'\n"
    assert any(f"--python {release} " in command for command in first(log).fix)


@pytest.mark.parametrize("place", ["./flash-attention", "-e .", "git+https://github.com/Dao-AILab/flash-attention"])
def test_what_was_built_from_a_place_is_built_from_there_again(place: str) -> None:
    log = f"$ pip install {place}\n  Building wheel for flash-attn (setup.py): started\n"
    log += "      ModuleNotFoundError: No module named 'torch'\n"
    fix = look(log).findings[0].fix
    assert any(step.startswith(f"pip install {place} --no-build-isolation ") for step in fix)
    assert not any("pip install flash-attn" in step for step in fix)


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (IN_A_NODE + "ModuleNotFoundError: No module named 'einops'\n", "python -m pip install -r custom_nodes/ComfyUI-Spam/requirements.txt "),
        (IN_A_NODE + "ImportError: cannot import name 'a' from 'utils' (/c/ComfyUI/utils/__init__.py)\n", "git -C custom_nodes/ComfyUI-Spam pull "),
        ("ModuleNotFoundError: No module named 'requests'\ntorch\n", "python -m pip install requests "),
        ("ModuleNotFoundError: No module named 'clip'\ntorch\n", "pip install --no-build-isolation 'git+https://github.com/openai/CLIP' "),
        ("ModuleNotFoundError: No module named 'my_ops'\ntorch\n", "python -m pip install -e . "),
    ],
)  # fmt: skip
def test_a_package_is_named_only_where_it_is_known_to_have_the_module(log: str, command: str) -> None:
    """Anyone may have taken the name of a module that is the user's own."""
    fix = look(log).findings[0].fix
    assert fix[0].startswith(command)
    assert not any(f"install {name}" in step or f"-U {name}" in step for step in fix for name in ("my_ops", "utils"))


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (
            (
                "$ uv run train.py\n"
                "warning: `VIRTUAL_ENV=envs/a` does not match the project environment path `.venv` and will be ignored; "
                "use `--active` to target the active environment instead\n"
                "ModuleNotFoundError: No module named 'tqdm'\n"
            ),
            "uv run --active train.py",
        ),
        (
            (
                "AttributeError: module 'numpy' has no attribute 'float'.\n"
                "    https://numpy.org/devdocs/release/1.20.0-notes.html#deprecations. Did you mean: 'cfloat'?\n"
            ),
            "pip install 'numpy<1.24'",
        ),
        (
            (
                "$ python.exe -m pip install triton==3.1.0\n"
                "ERROR: Could not find a version that satisfies the requirement triton==3.1.0 (from versions: none)\n"
                "ERROR: No matching distribution found for triton==3.1.0\n"
            ),
            "python.exe -m pip install triton-windows",
        ),
    ],
    ids=["an option of uv run", "a suggestion of Python", "triton on Windows"],
)
def test_the_first_command_is_the_one_that_helps(log: str, first: str) -> None:
    report = explain(io.BytesIO(log.encode()))
    fixes = (report.findings or report.possible)[0].fix
    assert fixes[0].startswith(first)


def test_what_is_next_to_a_toolkit_is_named(tmp_path: Path) -> None:
    for file in (
        "cuda-13.0/bin/nvcc",
        "cuda-11.3/bin/nvcc",
        "cuda-11.3/lib/libcudart_static.a",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    old = CudaToolkit(str(tmp_path / "cuda-11.3"), Version("11.3"), "CUDA_HOME")
    host = replace(NO_ENVIRONMENT, toolkits=(old,))
    too_old = "nvcc fatal   : Unknown option '--threads'\n"
    assert carried(too_old, "make", host, tmp_path).startswith(f"export CUDA_HOME={tmp_path}/cuda-13.0 ")
    unlinked = "  = note: rust-lld: error: undefined symbol: __cudaPopCallConfiguration\n"
    assert f"-C link-arg=-L{tmp_path}/cuda-11.3/lib -C" in carried(unlinked, "cargo build", host, tmp_path)


@pytest.mark.parametrize(
    "word", ["submodules/rasterizer", "https://example.org/x-1.0.whl", "git+https://example.org/x", "dist/x.tar.gz"]
)
def test_a_path_or_an_address_names_no_package_to_install(word: str) -> None:
    report = look(f"$ pip install {word}\nerror: AssertionError: Multiple .egg-info directories found\n")
    assert report.next_steps[0].startswith(f"pip install {word} ")
    assert not any("-v " in step for step in report.next_steps)


def test_an_error_of_cmake_is_shown_with_its_message() -> None:
    log = "CMake Error at vendor/CMakeLists.txt:9 (message):\n  LLAMA_CUBLAS is gone.\n\n  Use GGML_CUDA instead\n"
    assert look(log).errors[0].text == "CMake Error at vendor/CMakeLists.txt:9 (message): LLAMA_CUBLAS is gone."


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/build", "ls -ld /build "),
        ("/var/run/consul/http.sock", "ls -ld /var/run/consul/http.sock "),
        ("/home/me/x/build/lib/x.o", "chown -R $(id -u) /home/me/x/build "),
        ("/usr/lib/python3/dist-packages/x", "python -m venv /tmp/venv "),
    ],
)
def test_only_what_a_build_left_changes_its_owner(path: str, command: str) -> None:
    fix = look(f"$ pip install x\nOSError: [Errno 13] Permission denied: '{path}'\n").findings[0].fix
    assert fix[0].removeprefix("sudo ").startswith(command)
    assert not any("chown" in line for line in fix[1:])


@pytest.mark.parametrize("name", ["apex", "nunchaku"])
def test_a_package_of_which_an_index_has_a_namesake_is_not_installed_by_its_name(name: str) -> None:
    report = look(
        f"ImportError: cannot import name 'X' from '{name}' (/v/lib/python3.11/site-packages/{name}/__init__.py)"
    )
    assert "github.com" in report.findings[0].fix[0]
    assert not any(re.search(rf"install (-U )?.*\b{name}( |$)", command) for command in report.findings[0].fix[1:])
