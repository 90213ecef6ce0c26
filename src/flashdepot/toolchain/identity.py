"""What compiles and links: the digests that go into every key, and one small compile before the long ones."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flashdepot.errors import IntegrityError, MissingToolError
from flashdepot.files.digests import sha256_files
from flashdepot.files.documents import read_record, write_record
from flashdepot.model.codec import digest_of, read
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.process.run import Finished, first_error, run
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.nvcc import SOURCE_NAME, Nvcc


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs and of zig, which links as well, read from their files.

    :raises MissingToolError: when one of them is missing or cannot be read.
    """
    nvcc = toolchain.nvcc
    return ToolchainId(nvcc.version, (*device_tools(nvcc), toolchain.zig.tool), (), toolchain.named)


def device_tools(nvcc: Nvcc) -> tuple[Tool, ...]:
    """What makes device code; :raises MissingToolError: when one of it cannot be read."""
    return _tools([(path.name.removesuffix(".exe"), str(nvcc.version), path) for path in nvcc.tools])


def _tools(named: Sequence[tuple[str, str, Path]]) -> tuple[Tool, ...]:
    tools = []
    for (name, version, path), digest in zip(named, sha256_files([path for _, _, path in named]), strict=True):
        if digest is None:
            raise MissingToolError(
                f"{path} cannot be read, and what it builds is known by its bytes.",
                hint="Install it again, or make it readable.",
            )
        tools.append(Tool(name, version, digest))
    return tuple(tools)


_SOURCE = """\
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

template <typename T> __global__ void scale(T* data, T factor) { data[threadIdx.x] *= factor; }

int launch(std::vector<float>& host, std::function<void(int)> report) {
    float* device = nullptr;
    scale<float><<<1, 1>>>(device, host.empty() ? 1.0f : host[0]);
    __half* half = nullptr;
    scale<__half><<<1, 1>>>(half, __float2half(2.0f));
    report(static_cast<int>(cudaGetLastError()));
    return 0;
}
"""


class ProbeResult(msgspec.Struct, frozen=True):
    """What the probe found out. ``source_name``: nvcc takes :data:`SOURCE_NAME`."""

    source_name: bool


def probe_toolchain(
    toolchain: Toolchain, identity: ToolchainId, folder: Path, host_flags: Sequence[str]
) -> ProbeResult:
    """Compile a small CUDA source; the answer for these very programs is kept in ``folder``.

    :param host_flags: what nvcc is given for the host compiler's sake.
    :raises MissingToolError: when the toolchain cannot compile it, with the compiler's first error.
    """
    if os.name == "nt":  # nvcc does not run there, and the pinned one takes them
        return ProbeResult(source_name=True)
    kept = folder / f"probe-{digest_of([_SOURCE, *SOURCE_NAME, identity.to_json()])[:16]}.json"
    with contextlib.suppress(OSError, IntegrityError, ValueError):  # without a record, or with a damaged one: try again
        return read(read_record(kept), ProbeResult)
    with tempfile.TemporaryDirectory(prefix="flashdepot-probe-") as work:
        source_name = _compile(toolchain, Path(work), host_flags, SOURCE_NAME).status == 0
        if not source_name:
            _require(_compile(toolchain, Path(work), host_flags, ()), toolchain)
    write_record(kept, {"source_name": source_name})
    return ProbeResult(source_name)


def _compile(toolchain: Toolchain, work: Path, host_flags: Sequence[str], extra: Sequence[str]) -> Finished:
    (work / "probe.cu").write_text(_SOURCE)
    arguments = [
        str(toolchain.nvcc.program),
        "-ccbin",
        str(toolchain.preprocessing.preprocessor),
        "-std=c++17",
        *host_flags,
    ]
    arguments += [word.format(name="probe.cu") for word in extra]
    command = [*arguments, "-fatbin", "probe.cu", "-o", "probe.o"]
    return run(command, cwd=work, env=toolchain.whole_environment(), timeout=300)


def _require(done: Finished, toolchain: Toolchain) -> None:
    if done.status == 0:
        return
    nvcc, zig = toolchain.nvcc, toolchain.preprocessing
    raise MissingToolError(
        f"nvcc {nvcc.version} ({nvcc.root}) with zig {zig.version} ({zig.root}) cannot compile a twenty-line "
        f"program:\n{first_error(done.output)}",
        hint="Try the nvcc that flashdepot provides: --cuda 13.0",
    )
