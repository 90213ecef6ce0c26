"""What the user's own project, or the failed command, has to say otherwise is said as a command that changes it."""

import io
import subprocess
from pathlib import Path

import pytest

from doctor.logs import NO_ENVIRONMENT, carried
from flashdepot.diagnose.explain import Files, explain
from flashdepot.diagnose.explain.channels import Build, Channels
from support.tools import posix

PROJECT = '[project]\nname = "trainer"\ndependencies = ["triton-windows<3.3"]\n[project.optional-dependencies]\ncu128 = []\ncpu = []\n'

CRATE = '[package]\nname = "x"\n[features]\nflash-cuda = []\n[dependencies]\nhalf = "2"\n'

MARCH = "cc1plus: note: valid arguments to '-march=' switch are: nocona znver1 native; did you mean 'znver1'?\n"


@pytest.mark.parametrize(
    ("file", "text", "command", "log", "said"),
    [
        ("requirements.txt", "einops\ntriton==2.1.0\n", "python.exe -m pip install -r requirements.txt", "ERROR: Could not find a version that satisfies the requirement triton==2.1.0 (from versions: none)\n", "requirements.txt, line 2: write   triton-windows "),
        ("Hi3DGen/requirements.txt", "einops\ntriton\n", "python.exe -m pip install -r Hi3DGen/requirements.txt", "ERROR: Could not find a version that satisfies the requirement triton (from versions: none)\n", "Hi3DGen/requirements.txt, line 2: write   triton-windows "),
        ("requirements.txt", "triton==3.1.0\n", "uv pip install --python-platform x86_64-pc-windows-msvc -r requirements.txt", "error: No solution found when resolving dependencies\n  cause: Because triton==3.1.0 has no wheels with a matching platform tag (e.g., `win_amd64`) and you require triton==3.1.0, we can conclude\n", "requirements.txt, line 1: write   triton-windows "),
        ("requirements.txt", "triton==3.0.0\n", "pip install -r requirements.txt", "ERROR: Could not find a version that satisfies the requirement triton==3.0.0 (from versions: none)\n", "sed -i.bak '1s|.*|triton-windows|' requirements.txt"),
        ("requirements.txt", "apex==0.1\n", "pip install -r requirements.txt", "ERROR: Could not find a version that satisfies the requirement apex==0.1 (from versions: 0.9.8.dev0, 0.9.10.dev0)\n", "sed -i.bak '1s|.*|git+https://github.com/NVIDIA/apex|' requirements.txt"),
        ("requirements.txt", "einops\npygpu==0.6.4\n", "uv pip install -r requirements.txt", "error: No solution found when resolving dependencies\n  cause: Because pygpu was not found in the package registry and you require pygpu==0.6.4, we can conclude\n", "sed -i.bak 2d requirements.txt"),
        ("pyproject.toml", '[tool.uv.sources]\ntorch = { index = "own" }\n', "uv sync", "error: Distribution `torch==2.8.0 @ registry+x` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're on Linux (`manylinux_2_36_x86_64`), but `torch` (v2.8.0) only has wheels for the following platform: `linux_aarch64`\n", "sed -i.bak 2d pyproject.toml"),
        (".python-version", "3.13\n", "uv sync", "error: Distribution `torch==2.5.1 @ registry+x` can't be installed because it doesn't have a source distribution or wheel for the current platform\n\nhint: You're using CPython 3.13 (`cp313`), but `torch` (v2.5.1) only has wheels with the following Python ABI tags: `cp311`, `cp312`\n", "uv python pin 3.12"),
        ("install.bat", "CMAKE_ARGS=-DGGML_CUDA=ON pip install x\n", "install.bat", "'CMAKE_ARGS' is not recognized as an internal or external command,\noperable program or batch file.\n", "install.bat, line 1: write   set CMAKE_ARGS=-DGGML_CUDA=ON&& pip install x "),
        ("Makefile", "NVCCFLAGS = -arch=sm_13\n", "make", "nvcc fatal   : Unsupported gpu architecture 'sm_13'\n", "sed -i.bak '1s|.*|NVCCFLAGS = -arch=sm_90|' Makefile"),
        ("apex/setup.py", "", 'pip install --global-option="--cuda_ext" ./apex', "ModuleNotFoundError: No module named 'amp_C'\n", 'pip install --config-settings "--build-option=--cuda_ext" ./apex --force-reinstall'),
        ("pyproject.toml", "", "pip install git+https://example.org/fa#egg=fa-hopper", "  WARNING: Generating metadata for package fa-hopper produced metadata for project name flash-attn. Fix your #egg=fa-hopper fragments.\nERROR: x has inconsistent name: expected 'fa-hopper', but metadata has 'flash-attn'\n", "flash-attn in place of fa-hopper "),
        ("poetry.lock", "", "poetry install", "  Unable to find installation candidates for onnxruntime (1.16.3)\n", "poetry add onnxruntime@latest "),
        ("a.txt", "", "pip install h2o4gpu-0.3.2-cp36-cp36m-linux_x86_64.whl", "ERROR: h2o4gpu-0.3.2-cp36-cp36m-linux_x86_64.whl is not a supported wheel on this platform.\n", "uv venv --clear --seed --python "),
        ("requirements.txt", "sageattention==2.2.0\n", "pip install -r requirements.txt", "ERROR: Could not find a version that satisfies the requirement sageattention==2.2.0 (from versions: 1.0.5, 1.0.6)\n", "sed -i.bak '1s|.*|sageattention==1.0.6|' requirements.txt"),
        ("pyproject.toml", PROJECT, "uv run train.py", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'einops'\n", "uv add einops"),
        ("pyproject.toml", PROJECT, "uv sync", "error: Failed to build `lap==0.4`\n      [stderr]\n      ModuleNotFoundError: No module named 'numpy'\n      hint: This error likely indicates that `lap` depends on `numpy`, but doesn't declare it as a build dependency.\n", "printf '%s\\n' '' '[tool.uv.extra-build-dependencies]' 'lap = [\"numpy\"]' >> pyproject.toml"),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 52 80)\n", "cmake --build build", "nvcc fatal   : Unsupported gpu architecture 'compute_52'\n", "sed -i.bak '1s|.*|set(CMAKE_CUDA_ARCHITECTURES 80)|' CMakeLists.txt"),
        ("Cargo.toml", '[dependencies]\nkern = { path = "." }\n[features]\ncuda = []\n', "cargo run --features cuda", "error: the package 'x' does not contain this feature: cuda\n", "cargo run --features kern/cuda"),
        ("CMakeLists.txt", "FetchContent_Declare(json GIT_TAG 3.11.3)\n", "cmake -B build", "CMake Error at x.cmake:49 (message):\n  Failed to checkout tag: '3.11.3'\n", "sed -i.bak '1s|.*|FetchContent_Declare(json GIT_TAG v3.11.3)|' CMakeLists.txt"),
        ("Cargo.toml", CRATE, "cargo build --features cuda,nccl", "error: the package 'x' does not contain this feature: cuda\n", "cargo build --features flash-cuda,nccl"),
        ("Makefile", "CXXFLAGS = -march=znver5\n", "make", f"cc1plus: error: bad value 'znver5' for '-march=' switch\n{MARCH}", "sed -i.bak '1s|.*|CXXFLAGS = -march=znver1|' Makefile"),
        ("pyproject.toml", PROJECT + "[tool.setuptools]\n", "uv pip install -e .", "error: Multiple top-level packages discovered in a flat-layout: ['data', 'model'].\n", "sed -i.bak "),
        ("kern/Cargo.toml", 'half = "1"\n', "cargo build", "note: there are multiple different versions of crate `half` in the dependency graph\n", "sed -i.bak '6s|.*|half = \"1\"|' Cargo.toml"),
        ("Downloads/fa-1-py3-none-any.whl", "", "pip install fa-1-py3-none-any.whl", "WARNING: Requirement 'fa-1-py3-none-any.whl' looks like a filename, but the file does not exist\nERROR: x\n", "pip install Downloads/fa-1-py3-none-any.whl"),
        ("vllm/pyproject.toml", PROJECT, "uv sync", "error: No `pyproject.toml` found in current directory or any parent directory\n", "cd vllm && uv sync"),
        ("csrc/include/attn/utils.h", "", "make", "a.cpp:1:10: fatal error: attn/utils.h: No such file or directory\n", 'export CPATH="$PWD/csrc/include'),
        ("cuda/fa_cuda.dll", "", "python -c 'import fa'", "ImportError: DLL load failed while importing _C: Module not found.\n", "cp cuda/fa_cuda.dll fa"),
        ("requirements.txt", "numpy<2\nx\n", "uv pip install -r requirements.txt", "error: No solution found when resolving dependencies\n  cause: Because x==1 depends on numpy>=2 and you require numpy<2, we can conclude that\n", "sed -i.bak '1s|.*|numpy|' requirements.txt"),
        ("requirements.txt", "torch=2.1\n", "pip install -r requirements.txt", "ERROR: Invalid requirement: 'torch=2.1': Expected end or semicolon\n", "sed -i.bak '1s|.*|torch==2.1|' requirements.txt"),
        ("CMakeLists.txt", "add_compile_options(-Wall -Werror)\n", "cmake --build build", "a.cpp:1:1: error: unused variable 'x' [-Werror=unused-variable]\n", "sed -i.bak '1s|.*|add_compile_options(-Wall )|' CMakeLists.txt"),
        ("k.cpp", "", "make", "k.cpp:1:1: error: 'uint8_t' was not declared\nk.cpp:1:1: note: 'uint8_t' is defined in header '<cstdint>'; did you forget to '#include <cstdint>'?\n", "sed -i.bak '1i #include <cstdint>' k.cpp"),
        ("requirements/cuda.txt", "", "pip install -r requirements-cuda.txt", "ERROR: Could not open requirements file: [Errno 2] No such file or directory: 'requirements-cuda.txt'\n", "pip install -r requirements/cuda.txt"),
        ("packages/kern/pyproject.toml", '[project]\nname = "fa-kern"\n', "uv sync", "error: Failed to build `x`\n  cause: `fa-kern` references a workspace in `tool.uv.sources` (e.g., `a`), but is not\n", "printf '%s\\n' '' '[tool.uv.workspace]' 'members = [\"packages/kern\"]' >> pyproject.toml"),
        ("a.cpp", "", "g++ -L. -lf a.cpp", "/usr/bin/ld: a.cpp:(.text+0x9): undefined reference to `f()'\n", "g++ -L. a.cpp -lf "),
        ("lib/libattn.so.2", "", "make", "/usr/bin/ld: cannot find -lattn: No such file or directory\n", 'ln -sf libattn.so.2 lib/libattn.so && export LIBRARY_PATH="$PWD/lib'),
        ("envs/flash-env/x", "", "conda install -n fa x", "EnvironmentLocationNotFound: Not a conda environment: @/envs/fa\n", "conda install -n flash-env x"),
        ("uv.toml", "[[index]]\nurl = 'http://127.0.0.1:9/simple'\ndefault = true\n", "uv pip install x", "error: Request failed after 1 retry\n  cause: Failed to fetch: `http://127.0.0.1:9/simple/x/`\n  cause: Connection refused (os error 111)\n", "sed -i.bak 1,3d uv.toml"),
        ("cpp/CMakeLists.txt", "", "cmake ..", 'CMake Error: The source directory "@" does not appear to contain CMakeLists.txt.\n', "cmake -S @/cpp "),
        ("Cargo.toml", '[dependencies]\nhalf = { git = "https://x/y", branch = "main" }\n', "cargo build", "error: failed to get `half` as a dependency\n\nCaused by:\n  failed to find branch `main`\n", "sed -i.bak '2s|.*|half = { git = \"https://x/y\" }|' Cargo.toml"),
        ("requirements.txt", "einops @ file:///croot/einops_1/work\n", "pip install -r requirements.txt", "ERROR: Could not install packages due to an OSError: [Errno 2] No such file or directory: '/croot/einops_1/work'\n", "sed -i.bak 's| @ file:///.*||' requirements.txt"),
        ("pyproject.toml", PROJECT, "uv sync --group cpu", "error: Group `cpu` is not defined in the project's `dependency-groups` table\n", "uv sync --extra cpu"),
        ("pyproject.toml", PROJECT, "uv sync --all-extras", "error: Extras `cpu` and `cu128` are incompatible with the declared conflicts: {`x[cpu]`, `x[cu128]`}\n", "uv sync --extra=cpu"),
        ("README.md", "", "uv add x", "error: No `pyproject.toml` found in current directory or any parent directory\n", "uv init --bare && uv add x"),
        ("requirements.txt", "--extra-index-url x\n", "conda install --file requirements.txt", "PluginError: Failed to parse environment specification from file: requirements.txt contains an invalid matchspec '--extra-index-url x'\n", "uv venv --allow-existing && . .venv/bin/activate && uv pip install -r requirements.txt "),
        ("CMakeLists.txt", "project(x)\n", "cmake -B build", 'CMake Error at CMakeLists.txt:5 (target_link_libraries):\n  Target "x" links to:\n\n    Threads::Threads\n\n  but the target was not found.  Possible reasons include:\n', "sed -i.bak '/^ *project *(/a find_package(Threads REQUIRED)' CMakeLists.txt"),
        ("Makefile", "HOSTCXX = g++-10\n", "make", "g++-10: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.\n", "sed -i.bak '1s|.*|HOSTCXX = g++|' Makefile"),
        ("my/Cargo.toml", "", "cargo run", "error: it is in no workspace:\ncurrent:   @/my/Cargo.toml\nworkspace: @/Cargo.toml\n", "printf '\\n[workspace]\\n' >> @/my/Cargo.toml"),
        ("environment.yml", "dependencies:\n  - pytorch\n  - pytorch-cuda=11.3\n", "conda env create -f environment.yml", "PackagesNotFoundInChannelsError: The following packages are not available from current channels:\n\n  - pytorch-cuda=11.3\n", "sed -i.bak '3s|.*|  - pytorch-cuda=11.6|' environment.yml"),
        ("environment.yml", "dependencies:\n  - pytorch\n  - pip\n", "conda env create -f environment.yml", "  pip                pytorch/noarch::pip-24.2-0\n  pytorch            pytorch/linux-64::pytorch-2.4.0-py3.11_cpu_0\n", "sed -i.bak '2s|.*|  - pytorch=*=*cuda*|' environment.yml"),
        ("x", "", "conda create -n tv pytorch torchvision", "  pytorch            conda-forge/linux-64::pytorch-2.5.1-cpu_mkl_py312\n", "conda create -n tv 'pytorch=*=*cuda*' torchvision "),
        ("requirements.txt", "flashinfer-python==0.2.1\n", "pip install -r requirements.txt && python -m sglang.launch_server", "Exception: flashinfer_python is installed with version 0.2.1, which is less than the minimum required version 0.2.1.post1. \n", "sed -i.bak '1s|.*|flashinfer-python>=0.2.1.post1|' requirements.txt"),
        ("fa/csrc/layer_norm/setup.py", "", "python demo.py", "Warning: import flash_attn rms_norm fail, please install FlashAttention layer_norm https://github.com/Dao-AILab/flash-attention/tree/main/csrc/layer_norm\nRuntimeError: the fused kernels could not be imported\n", "uv venv --allow-existing && . .venv/bin/activate && uv pip install --no-build-isolation ./fa/csrc/layer_norm "),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "2.0.1+cu118"\n', "poetry lock", "Because stalp depends on torch (2.0.1+cu118) which doesn't match any versions, version solving failed.\n", "sed -i.bak '2s|.*|torch = \"==2.0.1\"|' pyproject.toml"),
        ("train.py", "m = load(use_flash_attention_2=True)\n", "python train.py", "ImportError: Flash Attention 2 is not available. Make sure to have at least the version 2.1.0\n", "flashdepot install "),
        ("Pipfile.lock", f'"sha256:{"a" * 64}"\n', "pipenv sync", f"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    torch==0.4.1 from file:///x.whl:\n        Expected sha256 {'a' * 64}\n             Got        {'b' * 64}\n", f"sed -i.bak '1s|.*|\"sha256:{'b' * 64}\"|' Pipfile.lock"),
        ("x", "", "pip install --global_option=--cuda_ext ./apex", "Usage:   \n  pip install [options] <requirement specifier> ...\n\nno such option: --global_option\n", "pip install --global-option=--cuda_ext ./apex "),
        ("requirements.txt", "cupy==6.6\n", "pip install -r requirements.txt", "Collecting cupy==6.6 (from -r requirements.txt (line 1))\n  Preparing metadata (setup.py): started\n  error: subprocess-exited-with-error\n  /tmp/a.cpp:1:10: fatal error: cublas_v2.h: No such file or directory\n", "sed -i.bak '1s|.*|cupy-cuda12x|' requirements.txt"),
        ("x", "", "CMAKE_ARGS=-DLLAMA_CUBLAS=on pip install llama-cpp-python; python main.py", "RuntimeError: n_gpu_layers=40, but llama.cpp was not compiled with GPU offload support\n", "CMAKE_ARGS=-DLLAMA_CUBLAS=on pip install llama-cpp-python --force-reinstall --no-cache-dir "),
        ("opt/cuda/lib64/stubs/libcuda.so", "", "cmake . -DX=$Y && make", "CMake Error: The following variables are used in this project, but they are set to NOTFOUND.\nPlease set them or make sure they are set and tested correctly in the CMake files:\nCUDA_CUDA_LIBRARY (ADVANCED)\n", "cmake . -DX=$Y -DCUDA_CUDA_LIBRARY=@/opt/cuda/lib64/stubs/libcuda.so "),
        ("wheels/causal_conv1d-1.1.1-py3-none-any.whl", "", "python main.py", "TypeError: causal_conv1d_fwd(): incompatible function arguments. The following argument types are supported:\n", "uv venv --allow-existing && . .venv/bin/activate && uv pip install --no-deps --force-reinstall ./wheels/causal_conv1d-1.1.1-py3-none-any.whl "),
        (".cargo/config.toml", '[env]\nCUDNN_LIB = "@"\n', "cargo build", "error: linking with `cc` failed\n  = note: rust-lld: error: unable to find library -lcudnn\n", "sed -i.bak '2s|.*|CUDNN_LIB = \"@/lib/x64\"|' .cargo/config.toml"),
        ("run.sh", "export TRITON_OVERRIDE_ARCH=gfx1031\n", "bash run.sh", "Triton test failed: TRITON_OVERRIDE_ARCH must have the form ^sm(\\d+)$\n", "sed -i.bak 1d run.sh"),
        ("bench.py", "# /// script\n# dependencies = []\n# ///\nimport tqdm\n", "uv run bench.py", "ModuleNotFoundError: No module named 'tqdm'\n", "uv add --script bench.py tqdm"),
    ],
)  # fmt: skip
def test_what_the_projects_own_files_have_is_in_the_first_command(tmp_path, file, text, command, log, said) -> None:
    (tmp_path / "Cargo.toml").write_text(CRATE if "half" in text else "")
    (tmp_path / "fa").mkdir()
    (tmp_path / "fa/_C.pyd").write_bytes(b"\x90fa_cuda.dll\0")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text.replace("@", str(tmp_path)))
    (tmp_path / "lib/x64").mkdir(parents=True, exist_ok=True)
    (tmp_path / "lib/x64/libcudnn.so").touch()
    assert carried(log.replace("@", str(tmp_path)), command, NO_ENVIRONMENT, tmp_path).startswith(
        said.replace("@/", f"{tmp_path}/")
    )


TOUCH = "$(touch OWNED)"

LOCK = f'version = 3\n[[package]]\nname = "x"\nversion = "1"\ndependencies = ["half 1"]\n[[package]]\nname = "half"\nversion = "2 {TOUCH}"\n'


@posix("bash")
@pytest.mark.parametrize(
    ("file", "text", "command", "log"),
    [
        ("Cargo.toml", f'[features]\n"cudb{TOUCH}" = []\n', "cargo build --features cuda", "error: the package 'x' does not contain this feature: cuda\n"),
        ("Cargo.toml", f'[dependencies]\n"kern{TOUCH}" = {{ path = "." }}\n[features]\ncuda = []\n', "cargo run --features cuda", "error: the package 'x' does not contain this feature: cuda\n"),
        ("requirements.txt", f"sage==2 {TOUCH}\n", "pip install -r requirements.txt", "ERROR: Could not find a version that satisfies the requirement sage==2 (from versions: 1.0.5)\n"),
        ("Cargo.lock", LOCK, "cargo build", "note: there are multiple different versions of crate `half` in the dependency graph\n"),
        (f"{TOUCH}/pyproject.toml", "", "uv pip install -e .", "error: No `pyproject.toml` found in current directory or any parent directory\n"),
        (f"{TOUCH}/libattn.so", "", "make", "/usr/bin/ld: cannot find -lattn: No such file or directory\n"),
        (f"envs/fb{TOUCH}/x", "", "conda install -n fa x", "EnvironmentLocationNotFound: Not a conda environment: @/envs/fa\n"),
        (f"{TOUCH}/CMakeLists.txt", "", "cmake ..", 'CMake Error: The source directory "@" does not appear to contain CMakeLists.txt.\n'),
        (f"{TOUCH}/fa-1-py3-none-any.whl", "", "pip install fa-1-py3-none-any.whl", "WARNING: Requirement 'fa-1-py3-none-any.whl' looks like a filename, but the file does not exist\nERROR: x\n"),
        ("Makefile", f"CXXFLAGS = -march=znver5 '{TOUCH}'\n", "make", f"cc1plus: error: bad value 'znver5' for '-march=' switch\n{MARCH}"),
    ],
)  # fmt: skip
def test_what_files_and_their_names_put_into_a_command_starts_nothing(tmp_path, file, text, command, log) -> None:
    (tmp_path / "Cargo.toml").write_text(CRATE)
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        report = explain(
            io.BytesIO(log.replace("@", str(tmp_path)).encode()), NO_ENVIRONMENT, command, Files(here=True)
        )
    for step in (*report.next_steps, *(fix for cause in report.findings for fix in cause.fix)):
        if TOUCH in step:  # nothing of it is on this PATH; an expansion of the shell's needs none
            subprocess.run(
                ["bash", "-c", f"PATH=/nowhere; touch() {{ : > OWNED; }}; {step}"],
                cwd=tmp_path,
                capture_output=True,
                timeout=20,
                check=False,
            )
    assert not (tmp_path / "OWNED").exists()


def test_sources_of_another_program_than_the_failed_one_are_not_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench.py").write_text('load(attn_implementation="flash_attention_2")\n')
    monkeypatch.chdir(tmp_path)
    log = "$ python elsewhere/train.py\nImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed.\n"
    fix = explain(io.BytesIO(log.encode()), files=Files(here=True)).findings[0].fix
    assert not any("bench.py" in command for command in fix)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/train.py").write_text("import bench\n")
    fix = explain(io.BytesIO(log.encode()), files=Files(here=True)).findings[0].fix
    assert any("bench.py" in command for command in fix)


def test_a_channel_is_read_past_what_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "linux-64/repodata.json").mkdir(parents=True)
    (tmp_path / "noarch").mkdir()
    (tmp_path / "noarch/repodata.json").write_text('{"packages": {"pytorch-2.5.1-cuda126.conda": {"depends": []}}}')
    assert Channels(Files(here=True), f"-c file://{tmp_path}").builds("pytorch") == [Build("2.5.1", "cuda126")]
