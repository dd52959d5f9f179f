"""BTF is read as the kernel wrote it: checked on the running kernel, and on blobs made by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from bbrscope.probes import bbr_layout as layout
from bbrscope.probes import btf, known
from bbrscope.probes.base.errors import HostError
from bbrscope.probes.bbr_versions import SIZES

VMLINUX = Path("/sys/kernel/btf/vmlinux")


def blob(types: bytes, strings: bytes) -> bytes:
    header = struct.pack("<HBBIIIII", btf.MAGIC, 1, 0, 24, 0, len(types), len(types), len(strings))
    return header + types + strings


def small() -> bytes:
    """struct s { u32 a:3, b:29; s8 c[2]; } and int f(struct s *sk, int flag)."""
    strings = b"\0u32\0s8\0s\0a\0b\0c\0f\0sk\0flag\0"
    at = {
        name: strings.index(b"\0" + name.encode() + b"\0") + 1
        for name in "u32 s8 s a b c f sk flag".split()
    }

    def entry(name: str, kind: int, vlen: int, last: int, flag: int = 0) -> bytes:
        return struct.pack("<III", at.get(name, 0), kind << 24 | flag << 31 | vlen, last)

    types = entry("u32", btf.INT, 0, 4) + struct.pack("<I", 32)  # 1
    types += entry("s8", btf.INT, 0, 1) + struct.pack("<I", 1 << 24 | 8)  # 2
    types += entry("", btf.ARRAY, 0, 0) + struct.pack("<III", 2, 1, 2)  # 3
    types += entry("s", btf.STRUCT, 3, 8, 1)  # 4
    types += struct.pack("<III", at["a"], 1, 3 << 24 | 0)
    types += struct.pack("<III", at["b"], 1, 29 << 24 | 3)
    types += struct.pack("<III", at["c"], 3, 32)
    types += entry("", btf.PTR, 0, 4)  # 5
    types += entry("", btf.FUNC_PROTO, 2, 1)  # 6
    types += struct.pack("<II", at["sk"], 5) + struct.pack("<II", at["flag"], 1)
    types += entry("f", btf.FUNC, 0, 6)  # 7
    return blob(types, strings)


def test_bitfields_arrays_and_signs_are_unfolded_with_their_offsets() -> None:
    types = btf.Btf(small())
    (found,) = types.find(btf.STRUCT, "s")
    assert types.leaves(found) == [
        btf.Leaf("a", 0, 3, 4, False),
        btf.Leaf("b", 3, 29, 4, False),
        btf.Leaf("c[0]", 32, 0, 1, True),
        btf.Leaf("c[1]", 40, 0, 1, True),
    ]
    assert types.size(found) == 8


def test_parameters_come_in_order() -> None:
    assert btf.Btf(small()).parameters("f") == ["sk", "flag"]
    assert btf.Btf(small()).parameters("g") is None


def test_a_module_continues_the_numbering_and_the_strings_of_vmlinux() -> None:
    base = btf.Btf(small())
    # struct t { struct s inner; }: type 8, its member's type in the base, names in both.
    strings = b"t\0inner\0"
    start = len(base._strings)
    types = struct.pack("<III", start, btf.STRUCT << 24 | 1, 8)
    types += struct.pack("<III", start + 2, 4, 0)
    module = btf.Btf(blob(types, strings), base)
    (found,) = module.find(btf.STRUCT, "t")
    assert found == 8
    assert next(leaf.path for leaf in module.leaves(found)) == "inner.a"
    assert module.member_offset("s", "c") == 4


@pytest.mark.parametrize("data", [b"", b"\x9f\xeb\x01", b"x" * 64])
def test_what_is_not_btf_is_refused(data: bytes) -> None:
    with pytest.raises(HostError):
        btf.Btf(data)


@pytest.mark.skipif(not VMLINUX.exists(), reason="needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF)")
def test_the_running_kernels_struct_bbr_is_the_known_layout_of_its_size() -> None:
    types = btf.load()
    ids = types.find(btf.STRUCT, "bbr")
    if not ids:
        pytest.skip("needs a kernel with BBR built in (CONFIG_TCP_CONG_BBR=y)")
    for found in ids:
        version = SIZES[types.size(found)]
        assert tuple(types.leaves(found)) == known.layout(version).leaves


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_flat_struct_has_every_field_where_the_kernel_has_it(
    version: str, tmp_path: Path
) -> None:
    """An independent compiler lays the definition out: offsets of bytes, then of single bits."""
    import shutil
    import subprocess

    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc")
    struct_bbr = known.layout(version)
    lines = ["#include <stdio.h>", "#include <string.h>", layout.definition(struct_bbr)]
    lines += ["int main(void) { union { struct bbrscope_bbr b; unsigned char c[512]; } u;"]
    for leaf in struct_bbr.leaves:
        name = layout.flat(leaf.path)
        lines.append(f"memset(&u, 0, sizeof u); u.b.{name} = 1;")
        lines.append(
            'for (int i = 0; i < 4096; i++) if (u.c[i / 8] >> i % 8 & 1) printf("%d\\n", i);'
        )
    lines += ['printf("%zu\\n", sizeof(struct bbrscope_bbr)); }']
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines))
    program = tmp_path / "layout"
    subprocess.run(["gcc", "-o", str(program), str(source)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    *offsets, size = map(int, done.stdout.split())
    assert offsets == [leaf.bit_offset for leaf in struct_bbr.leaves]
    last = struct_bbr.leaves[-1]
    # Trailing padding is not spelled out; nothing is read there.
    assert last.bit_offset // 8 < size <= struct_bbr.size
