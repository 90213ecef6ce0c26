"""GPUs, their driver, and whether what is wanted runs on them."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.diagnose.case import Case, Intention, blocker, foreseen, misfit, note, warning
from flashdepot.errors import IncompatibleError
from flashdepot.facts.gpus import driver_floor
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.target import Architecture, spell

_GIVE_GPU = {
    "docker": "Start the container with its GPUs: docker run --gpus all ...",
    "podman": "Start the container with its GPUs: podman run --device nvidia.com/gpu=all ...",
    "kubernetes": "Ask for a GPU in the pod: resources: {limits: {nvidia.com/gpu: 1}}",
    "lxc": "Give the container its GPUs: lxc config device add NAME gpu gpu && lxc config set NAME nvidia.runtime=true",
}

_INSTALL_DRIVER = {
    "Ubuntu": "sudo ubuntu-drivers install",
    "Debian": "sudo apt-get install nvidia-driver (from the non-free component)",
    "Fedora": "sudo dnf install akmod-nvidia (from RPM Fusion)",
    "Arch": "sudo pacman -S nvidia",
}

_NO_GPU = frozenset({"", "-1", "none", "void", "NoDevFiles"})

_SMALL_SHARED_MEMORY = frozenset({Architecture(8, 6), Architecture(8, 9), Architecture(12, 0), Architecture(12, 1)})
"""GPUs with 99 KiB of shared memory for a block, against 163 and more (CUDA C++ Programming Guide, appendix)."""


def architectures(case: Case) -> Iterator[Diagnosis]:
    """GPUs that the kernels cannot run on, and code that none of the GPUs here runs."""
    if isinstance(case.choice, IncompatibleError):
        why = "FlashAttention-2 has no code for older GPUs: whatever was compiled, it would not run."
        yield foreseen(case.choice, "gpu-too-old", why)
        return
    if case.choice.note and (case.record.gpus or case.intention in {Intention.BUILD, Intention.LINK}):
        why = "What is made serves the architectures that were chosen, and no others."
        class_id = "gpu-too-old" if case.record.gpus else "compute-cap-undetected"
        yield note(class_id, case.choice.note, why, "Name the GPUs that it is for: --arch 80,90 or --arch universal")
    if case.intention not in {Intention.RUN, Intention.INSTALL}:
        return
    for gpu in case.usable_gpus:
        if not any(wanted.runs_on(gpu.architecture) for wanted in case.wanted):
            seen = f"--arch {spell(case.wanted)} has no machine code for {gpu.name} ({gpu.architecture.dotted})."
            why = "A kernel launch on it fails with 'no kernel image is available for execution on the device'."
            found = blocker if len(case.usable_gpus) == 1 else warning
            yield found("no-kernel-image", seen, why, "Leave --arch out, or add the GPU's architecture to it.")


def presence(case: Case) -> Iterator[Diagnosis]:
    """A missing driver, a missing GPU, or GPUs that are hidden from programs."""
    record = case.record
    if record.platform.system == "darwin":
        return
    hidden = record.variables.get("CUDA_VISIBLE_DEVICES")
    if record.gpus and hidden is not None and hidden.strip() in _NO_GPU and case.intention is Intention.RUN:
        seen = f"CUDA_VISIBLE_DEVICES is '{hidden}'."
        yield blocker("gpu-missing", seen, "CUDA then shows programs no GPU.", "unset CUDA_VISIBLE_DEVICES")
    if record.gpus:
        return
    if case.intention is Intention.RUN:
        yield _absent(case)
    elif case.intention is Intention.INSTALL:
        why = "It can be installed, but not checked here without a GPU."
        yield note("gpu-missing", _absent(case).observed, why, "See what running needs: flashdepot doctor run")


def _absent(case: Case) -> Diagnosis:
    """Why no GPU is to be seen, as the blocker that it is for running."""
    record = case.record
    why = "The kernels run only on NVIDIA GPUs, through NVIDIA's driver."
    # Pods and WSL see no PCI bus, and the GPU of an ARM SoC is not on it.
    sees_bus = not record.wsl and record.container != "kubernetes" and record.platform.machine == "x86_64"
    if record.driver is None and sees_bus and record.nvidia_devices == 0:
        seen = "This machine has no NVIDIA GPU: there is none on its PCI bus."
        return misfit("gpu-missing", seen, why, "Use a machine with one, from the A100 or RTX 30 on.")
    if record.container:
        seen = f"No NVIDIA GPU is visible in this container ({record.container})."
        fix = _GIVE_GPU.get(record.container, "Start the container with access to the host's GPUs and driver.")
        return blocker("driver-missing", seen, why, fix)
    if record.wsl:
        seen = "No NVIDIA GPU is visible in the Windows Subsystem for Linux."
        fix = "Install NVIDIA's driver on Windows (none in Linux), then: wsl --update && wsl --shutdown"
        return blocker("driver-missing", seen, why, fix)
    if record.driver is not None:
        seen = f"NVIDIA driver {record.driver} is installed and serves no GPU."
        return blocker("gpu-missing", seen, why, "See what it says: nvidia-smi; dmesg | grep -i nvrm")
    seen = "This machine has an NVIDIA GPU and no driver." if record.nvidia_devices else "No NVIDIA driver was found."
    command = next((f": {command}" for name, command in _INSTALL_DRIVER.items() if name in record.os_name), ".")
    return blocker("driver-missing", seen, why, f"Install NVIDIA's driver, 580 or newer{command}")


def driver(case: Case) -> Iterator[Diagnosis]:
    """A driver that is too old for what CUDA 12 or 13 builds."""
    record = case.record
    if record.driver is None or record.platform.system not in {"linux", "windows"}:
        return
    system = record.platform.system
    lowest = driver_floor(12, system, compressed=False)
    newest = driver_floor(13, system, compressed=True)
    if record.driver < lowest:
        seen = f"The NVIDIA driver is {record.driver}{_serves(case)}."
        why = f"What CUDA 12 builds needs driver {lowest}, and what CUDA 13 builds {newest}; nothing older is made."
        yield misfit("driver-too-old", seen, why, f"Update the driver to {newest} or newer.")
    elif record.driver < newest and case.intention is not Intention.BUILD:
        seen = f"The NVIDIA driver is {record.driver}{_serves(case)}."
        why = f"Libraries that CUDA 13 built need {newest}: this machine runs only those of CUDA 12."
        fix = f"Update the driver to {newest} or newer, or build with a CUDA 12 toolkit: flashdepot get --cuda 12.8"
        yield warning("driver-too-old", seen, why, fix)


def _serves(case: Case) -> str:
    return f"; it serves CUDA up to {case.driver_cuda}" if case.driver_cuda else ""


def shared_memory(case: Case) -> Iterator[Diagnosis]:
    """GPUs on which the largest backward kernels have limits."""
    if small := [g for g in case.usable_gpus if g.architecture in _SMALL_SHARED_MEMORY]:
        seen = f"{small[0].name} ({small[0].architecture.dotted}) has 99 KiB of shared memory for a block."
        why = "There, the backward pass of head dims over 192 works only without dropout."
        fix = "Train such models on an A100, H100 or B200, or without dropout."
        yield note("cuda-invalid-argument", seen, why, fix)


def stubs(case: Case) -> Iterator[Diagnosis]:
    """CUDA's stub of the driver library on the path of the loader."""
    path = case.record.variables.get("LD_LIBRARY_PATH", "")
    if stub := next((part for part in path.split(":") if part.rstrip("/").endswith("stubs")), None):
        seen = f"LD_LIBRARY_PATH has {stub}."
        why = "The libcuda.so in it is for linking: programs that load it find no GPU."
        yield warning("cuda-stub-library", seen, why, "Take that folder out of LD_LIBRARY_PATH.")
