"""Lines for a POSIX shell and for cmd."""

from __future__ import annotations

import pytest

from flashdepot.link.lines import Shell


@pytest.mark.parametrize(("system", "shell"), [("linux", Shell.POSIX), ("windows", Shell.CMD)])
def test_a_system_has_its_shell(system: str, shell: Shell) -> None:
    assert Shell.of(system) is shell


@pytest.mark.parametrize(
    ("arguments", "posix", "cmd"),
    [
        (["/MD", "a.lib"], "/MD a.lib", "/MD a.lib"),
        (["-DX=C:/my libs/fa"], "'-DX=C:/my libs/fa'", '"-DX=C:/my libs/fa"'),
        (["/LIBPATH:C:\\R&D\\lib"], "'/LIBPATH:C:\\R&D\\lib'", '"/LIBPATH:C:\\R&D\\lib"'),
        (["/IC:\\a (b) & c\\include"], "'/IC:\\a (b) & c\\include'", '"/IC:\\a (b) & c\\include"'),
    ],
)
def test_arguments_are_quoted_where_the_shell_would_act_on_them(arguments: list[str], posix: str, cmd: str) -> None:
    assert Shell.POSIX.join(arguments) == posix
    assert Shell.CMD.join(arguments) == cmd


def test_each_shell_has_its_own_way_to_set_a_variable_and_to_say_nothing() -> None:
    assert Shell.POSIX.assignment("A", "b c") == "export A='b c'"
    assert Shell.CMD.assignment("A", "b c") == 'set "A=b c"'
    assert Shell.POSIX.prepending("P", "/a b") == "export P='/a b'${P:+:$P}"
    assert Shell.CMD.prepending("P", "C:\\a b") == 'set "P=C:\\a b;%P%"'
    assert (Shell.POSIX.remark("x"), Shell.CMD.remark("x")) == ("# x", "rem x")
