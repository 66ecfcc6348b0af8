"""--isa of the scripts here: caps ppengine (PPENGINE_ISA) and PyTorch, MKL and oneDNN in it alike, so that a comparison is fair."""
import os

CHOICES = ["native", "avx2", "avx512"]
PYTORCH = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
           "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}}


def add(parser):
    parser.add_argument("--isa", choices=CHOICES, default="native", help="cap the vector instructions of both sides")


def apply(args):
    """Sets the environment that both sides inherit."""
    os.environ.update(PYTORCH.get(args.isa, {}))
    os.environ["PPENGINE_ISA"] = args.isa
