# SPDX-License-Identifier: Apache-2.0
"""Where the native trainer spends its time on the 32×32 network: by layer and direction, against the bound.

    python benchmarks/native_layers.py [--batch 64] [--isa avx512] [--against WORKING_COPY]

The bound is the time of the dense multiply-adds at the speed of torch's matrix product on one thread. With
`--against`, the kernels of another working copy run in turns with these. Processor time, medians.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent.parent / "feddag" / "native" / "src"


def compile_kernels(source: Path, isa: str, folder: Path) -> Path:
    """One program out of the kernels of a working copy."""
    from feddag.native.build import COMMON_FLAGS, FLOAT_FLAGS, find_compiler, instruction_sets

    lanes, flags = instruction_sets()[isa]
    program = folder / f"layers-{len(list(folder.iterdir()))}"
    block = ["-DWITH_BLOCK"] if "float* block;" in (source / "kernels.h").read_text() else []
    command = [*find_compiler().split(), "-O3", *COMMON_FLAGS, *FLOAT_FLAGS, *flags, *block, f"-I{source}"]
    command += [f"-DFEDDAG_ISA={isa}", f"-DFEDDAG_LANES={lanes}"]
    subprocess.run([*command, str(Path(__file__).with_suffix(".cpp")), "-o", str(program)], check=True)
    return program


def matrix_speed() -> float:
    """Multiply-adds per second of one thread, the best of a second."""
    import torch

    torch.set_num_threads(1)
    square, best, end = torch.ones(1024, 1024), 0.0, time.perf_counter() + 1
    while time.perf_counter() < end:
        start = time.thread_time()
        torch.mm(square, square)
        best = max(best, 1024**3 / (time.thread_time() - start))
    return best


def main() -> None:
    """Print one row per layer and working copy."""
    from feddag import native

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--isa", default=native.isa())
    parser.add_argument("--against", type=Path, help="another working copy, for example the former commit")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    sources = {"here": HERE}
    if arguments.against:
        sources["there"] = arguments.against / "feddag" / "native" / "src"
    with tempfile.TemporaryDirectory() as name:
        programs = {k: compile_kernels(s, arguments.isa, Path(name)) for k, s in sources.items()}
        found: dict[tuple[str, str], list[list[float]]] = {}
        speeds = []
        for _ in range(arguments.repeats):
            speeds.append(matrix_speed())
            for copy, program in programs.items():
                done = subprocess.run(
                    [program, str(arguments.batch)], capture_output=True, text=True, check=True
                )
                for line in done.stdout.splitlines():
                    layer, *values = line.split()
                    found.setdefault((layer, copy), []).append([float(v) for v in values])
    print(
        f"{arguments.isa}, batch {arguments.batch}, µs per sample; "
        f"matrix products {max(speeds) / 1e9:.1f} GMAC/s"
    )
    print(f"{'layer':10}{'copy':8}{'arrange':>9}{'forward':>9}{'backward':>9}{'live':>7}{'dense bound':>13}")
    for (layer, copy), rows in sorted(found.items()):
        arrange, forward, backward, dense, live = (median(column) for column in zip(*rows, strict=True))
        bound = dense / max(speeds) * 1e6
        print(f"{layer:10}{copy:8}{arrange:9.1f}{forward:9.1f}{backward:9.1f}{live:7.0%}{bound:13.1f}")


if __name__ == "__main__":
    main()
