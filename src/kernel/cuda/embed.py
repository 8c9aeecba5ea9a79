#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C file that embeds the compiled kernels and lists what they hold (kernel/cuda/images.h).

Arguments are files named NAME.sm_90a.cubin or NAME.compute_121.ptx. Each is embedded as a compressed fat binary, which
drivers load like the file itself.
"""
import argparse
import os
import re
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

SYMBOL_FUNCTION, SYMBOL_ENTRY = 2, 0x10  # in a symbol's type, and in what NVIDIA puts beside its visibility
SECTION_SYMBOLS = 2
RESERVED = 1024  # of the shared memory that newer cubins count, the system's own; devices do not count it


def text_at(data, begin):
    return data[begin:data.index(b"\0", begin)].decode()


def cubin_functions(data):
    """The kernels in a cubin, by the symbol table of its ELF, and how much shared memory each always takes."""
    section_at, = struct.unpack_from("<Q", data, 40)
    section_size, section_count, names_index = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_at + i * section_size) for i in range(section_count)]
    names_at = sections[names_index][4]
    sizes = {text_at(data, names_at + name): size for name, _, _, _, _, size, *_ in sections}
    reserved = RESERVED if ".nv.shared.reserved.0" in sizes else 0
    functions = {}
    for _, kind, _, _, offset, size, link, _, _, entry_size in sections:
        if kind != SECTION_SYMBOLS:
            continue
        for at in range(offset, offset + size, entry_size):
            name, info, other = struct.unpack_from("<IBB", data, at)
            if info & 15 == SYMBOL_FUNCTION and other & SYMBOL_ENTRY:
                function = text_at(data, sections[link][4] + name)
                functions[function] = max(sizes.get(".nv.shared." + function, 0) - reserved, 0)
    return functions


def ptx_functions(data):
    """The kernels in PTX. What they take is known to the driver's compiler alone."""
    return {name: 0 for name in re.findall(r"\.entry\s+(\w+)", data.decode())}


class Image:
    def __init__(self, path, folder, fatbinary):
        self.name, target, kind = os.path.basename(path).split(".")
        with open(path, "rb") as file:
            data = file.read()
        self.functions = cubin_functions(data) if kind == "cubin" else ptx_functions(data)
        if not self.functions:
            raise SystemExit(f"{path}: no kernel in it")
        number = target.split("_")[1]
        self.architecture, self.ptx_architecture = (number_of(number), 0) if kind == "cubin" else (0, number_of(number))
        self.path = os.path.join(folder, os.path.basename(path) + ".fatbin")
        form = "elf" if kind == "cubin" else "ptx"
        subprocess.run([fatbinary, "--create=" + self.path, "-64", "--compress-all", "--compress-mode=size",
                        f"--image3=kind={form},sm={number},file={path}"], check=True)
        self.bytes = os.path.getsize(self.path)


def number_of(architecture):
    return int(architecture.rstrip("a"))


def number_list(architectures):
    """The architectures of a build, as C has them."""
    numbers = sorted(number_of(word) for word in architectures.split(",") if word not in ("", "ptx"))
    return "".join(f"{number}, " for number in numbers) + "0"


def write(out, images, options):
    out.write('// Written by kernel/cuda/embed.py.\n#include "kernel/cuda/images.h"\n\n')
    for i, image in enumerate(images):
        out.write(f'extern const unsigned char cuda_image_{i}[] __attribute__((visibility("hidden")));\n'
                  f'__asm__(".pushsection .rodata\\n.balign 64\\n.globl cuda_image_{i}\\n.hidden cuda_image_{i}\\n"\n'
                  f'        "cuda_image_{i}:\\n.incbin \\"{os.path.abspath(image.path)}\\"\\n.popsection\\n");\n'
                  f'static const struct cuda_image_function functions_{i}[] = {{\n')
        out.writelines(f'    {{ "{name}", {shared} }},\n' for name, shared in sorted(image.functions.items()))
        out.write("    { 0 },\n};\n\n")
    out.write("const struct cuda_image cuda_images[] = {\n")
    out.writelines(f'    {{ "{image.name}", {image.architecture}, cuda_image_{i}, {image.bytes}, functions_{i} }},\n'
                   for i, image in enumerate(images))
    out.write(f"    {{ 0 }},\n}};\n\nconst int cuda_architectures[] = {{ {number_list(options.architectures)} }};\n"
              f"const int cuda_ptx_architecture = {max((image.ptx_architecture for image in images), default=0)};\n"
              f"const int cuda_driver_needed = {options.driver};\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--fatbinary", required=True)
    parser.add_argument("--driver", type=int, required=True)
    parser.add_argument("--architectures", required=True, help="of the build: 80,90a,ptx")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    folder = options.output + ".p"
    os.makedirs(folder, exist_ok=True)
    paths = [path for path in options.files if not path.endswith(".py")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # compressing takes its time
        images = list(pool.map(lambda path: Image(path, folder, options.fatbinary), paths))
    with open(options.output, "w") as out:
        write(out, images, options)


if __name__ == "__main__":
    main()
