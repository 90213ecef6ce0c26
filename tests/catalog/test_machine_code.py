import pytest

from flashdepot.catalog.published_files import implied_sass
from flashdepot.model.wheel import WheelName


@pytest.mark.parametrize(
    ("start", "official", "sass"),
    [
        ("flash_attn-2.8.3+cu126torch2.8", False, ("80", "90")),
        ("flash_attn-2.8.3+cu128torch2.8", False, ("80", "90", "100", "120")),
        ("flash_attn-2.8.3+cu130torch2.9", False, ("80", "90", "100", "120")),
        ("flash_attn-2.7.2.post1+cu129torch2.8", False, ("80", "90")),
        ("flash_attn-2.7.3+cu128.torch27", False, ("80", "90", "100", "120")),
        ("flash_attn-2.6.3+cu118torch2.4cxx11abiTRUE", True, ("80", "90")),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE", True, ("80", "90", "100", "120")),
        ("flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE", True, ("80", "90")),
        ("flash_attn-2.7.3+cu11torch2.5cxx11abiFALSE", True, ("80", "90")),
        ("flash_attn-1.0.9+cu121torch2.1", False, ("75", "80", "90")),
        ("flash_attn_3-3.0.0+cu128torch2.9gite2743ab", False, ("80", "90a")),
    ],
)
def test_version_and_nvcc_imply_the_machine_code(start, official, sass):
    assert implied_sass(WheelName.parse(f"{start}-cp312-cp312-linux_x86_64.whl"), official=official) == sass


@pytest.mark.parametrize(
    ("start", "official"),
    [
        ("flash_attn-2.8.3+cu12torch2.8", False),  # another publisher's 12 is any 12
        ("flash_attn-2.8.4+cu130torch2.11", False),  # a version that nobody has read
        ("flash_attn-2.0.6+cu118torch2.0cxx11abiTRUE", True),
        ("flash_attn-2.8.3", True),
        ("flash_attn-2.8.3+cu117torch2.0", False),
        ("flash_attn_3_nv-1.0.3+cu128.torch210", False),
    ],
)
def test_what_the_table_does_not_have_is_not_guessed(start, official):
    assert implied_sass(WheelName.parse(f"{start}-cp312-cp312-linux_x86_64.whl"), official=official) == ()
