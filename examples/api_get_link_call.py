"""Get a library through flashdepot's API, link it to a C program, and run that. Needs a C compiler and no GPU.

Usage: python api_get_link_call.py [ARCH], with architectures such as 80,90; without them, this machine's GPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from flashdepot import Client, api
from flashdepot.errors import FlashdepotError

PROGRAM = r"""
#include <flash_attention.h>
#include <stdio.h>

int main(void) {
  fa_info info = FA_INFO_INIT;
  if (fa_build_info(&info) != FA_STATUS_OK) {
    fprintf(stderr, "%s\n", fa_last_error());
    return 1;
  }
  printf("built by flashdepot %s with CUDA %d.%d\n", info.flashdepot, info.cuda / 1000, info.cuda % 1000 / 10);
  for (int i = 0; i < info.families_count; i++) {
    const fa_family *family = (const fa_family *)((const char *)info.families + i * info.family_size);
    printf("%s %s, %d units, SASS for", family->name, family->upstream, family->units_count);
    for (int k = 0; k < family->sass_count; k++) printf(" sm_%d", family->sass[k]);
    printf("\n");
  }
  return 0;
}
"""


class OnStandardError(api.Events):
    """Shows what a call says, so that a build of a minute is not a silent one."""

    def note(self, text: str) -> None:
        """Print a note."""
        print(text, file=sys.stderr)

    warn = note


def main() -> None:
    """Get, link, call."""
    client = Client(events=OnStandardError())
    words = client.link(profile="quick", arch=sys.argv[1] if len(sys.argv) > 1 else None)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "info.c"), Path(folder, "info")
        source.write_text(PROGRAM)
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *words.compile, str(source), "-o", str(program), *words.link], check=True)
        subprocess.run([str(program)], check=True)


if __name__ == "__main__":
    try:
        main()
    except FlashdepotError as error:
        sys.exit(f"{error.message}\n{error.hint}")
