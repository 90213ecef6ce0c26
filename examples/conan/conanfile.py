"""libflashattention for Conan 2. `flashdepot get` makes or fetches the library; no CUDA toolkit is needed.

conan create examples/conan -o "&:arch=80,90" -o "&:profile=inference"
"""

from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy

PLATFORMS = {("Linux", "x86_64"), ("Linux", "armv8"), ("Windows", "x86_64")}


class FlashAttention(ConanFile):
    name = "flashattention"
    version = "2.8.3"
    license = "BSD-3-Clause"
    description = "FlashAttention's CUDA kernels behind a C ABI, without torch and Python"
    topics = ("attention", "cuda", "gpu")
    package_type = "library"
    settings = "os", "arch"
    options = {
        "shared": [True, False],
        "profile": ["quick", "inference", "training", "full"],
        "arch": ["ANY"],
        "library": ["ANY"],
    }
    default_options = {"shared": False, "profile": "inference", "arch": "universal", "library": ""}
    options_description = {
        "arch": "GPU architectures, as for 'flashdepot get --arch'",
        "library": "a folder that 'flashdepot get' wrote, in place of one that is made here",
    }

    def validate(self):
        if (str(self.settings.os), str(self.settings.arch)) not in PLATFORMS:
            raise ConanInvalidConfiguration("libflashattention is for Linux (x86_64, armv8) and Windows (x86_64)")

    def package_id(self):
        del self.info.options.library  # the same package, wherever it was made

    def build(self):
        if self.options.library:
            return
        arch = {"armv8": "aarch64"}.get(str(self.settings.arch), str(self.settings.arch))
        target = f"{str(self.settings.os).lower()}-{arch}"
        words = f"--profile {self.options.profile} --arch {self.options.arch} --target {target} --yes"
        self.run(f"flashdepot get {words} --out library")

    def package(self):
        made = Path(str(self.options.library) or self.build_folder) / ("" if self.options.library else "library")
        copy(self, "*", src=str(made), dst=self.package_folder)

    def package_info(self):
        kind = "shared" if self.options.shared else "static"
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has a CMake package of its own
        self.cpp_info.builddirs = ["lib/cmake/FlashAttention"]
        self.cpp_info.libdirs = [f"lib/{kind}"]
        self.cpp_info.bindirs = ["lib/shared"]
        self.cpp_info.libs = ["flashattention"]
        if not self.options.shared:
            self.cpp_info.defines = ["FA_STATIC"]
            if self.settings.os == "Linux":
                self.cpp_info.system_libs = ["dl", "pthread"]
