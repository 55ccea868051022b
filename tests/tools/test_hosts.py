# Hosts of every kind: that refuse the tiles of AMX, that lack AVX-512, with any number of cores and
# threads; and what decoding asks of the system. The same bits on each, or a clear error.
import ctypes
import os
import re
import shutil
import struct
import subprocess

from stasis_process import CommandTest, GEMMA, all_tokens, comma, kernel_tables

THREADS_MAX = 1024

# Linux: asm/unistd_64.h, asm/prctl.h, linux/prctl.h, linux/seccomp.h, linux/bpf_common.h.
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM = 158, 0x1023
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW, EPERM = 0x00050000, 0x7FFF0000, 1
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
AT_NUMBER, AT_ARGUMENT = 0, 16  # offsets in struct seccomp_data


class Filter(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def refuse_amx():
    """From here on the kernel answers this process's request for the tiles with EPERM."""
    program = [(LOAD_WORD, 0, 0, AT_NUMBER), (JUMP_IF_EQUAL, 0, 3, ARCH_PRCTL),
               (LOAD_WORD, 0, 0, AT_ARGUMENT), (JUMP_IF_EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
               (RETURN, 0, 0, SECCOMP_RET_ERRNO | EPERM), (RETURN, 0, 0, SECCOMP_RET_ALLOW)]
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    system = ctypes.CDLL(None)
    if (system.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or
            system.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
                         ctypes.byref(Filter(len(program), packed)), 0, 0) != 0):
        raise OSError("the kernel takes no filter")


def one_core():
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


class Hosts(CommandTest):
    def digest(self, tokens, *options, **process):
        return self.json("run", GEMMA, "--tokens", comma(tokens), "-n", 5, "--ignore-eos", *options,
                         **process)["digest"]

    def kernels(self, **process):
        return self.json("info", GEMMA, **process)["kernels"]

    def test_a_host_that_refuses_amx(self):
        if self.kernels() != "amx":
            self.skipTest("this machine has no AMX to refuse")
        self.assertRegex(self.kernels(before=refuse_amx), r"\Aavx512")
        tokens = all_tokens(GEMMA)
        self.assertEqual(self.digest(tokens, before=refuse_amx),
                         self.digest(tokens, "--kernels", "amx"))
        self.refused("run", GEMMA, "--tokens", "1,2", "--kernels", "amx", before=refuse_amx,
                     names=['"amx"', "UNSUPPORTED"])

    def test_a_machine_without_avx512(self):
        # Its CPUID reports AVX2, and nothing later.
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed")
        valgrind = ["valgrind", "--quiet", "--tool=none"]
        self.assertEqual(self.kernels(under=valgrind), "avx2")
        tokens = all_tokens(GEMMA)[:20]
        self.assertEqual(self.digest(tokens, under=valgrind), self.digest(tokens))
        for table in kernel_tables()[:kernel_tables().index("avx2")]:
            self.refused("run", GEMMA, "--tokens", "1,2", "--kernels", table, under=valgrind,
                         names=[f'"{table}"', "UNSUPPORTED"])

    def test_any_number_of_cores_and_threads(self):
        tokens = all_tokens(GEMMA)[:100]
        one = self.digest(tokens, "--threads", 1)
        for threads in 3, 7, 64, THREADS_MAX:
            self.assertEqual(self.digest(tokens, "--threads", threads), one, threads)
        for options in [], ["--threads", 3]:
            self.assertEqual(self.digest(tokens, *options, before=one_core), one, options)
        self.refused("run", GEMMA, "--tokens", "1,2", "--threads", THREADS_MAX + 1,
                     names=[str(THREADS_MAX), str(THREADS_MAX + 1), "INVALID_ARGUMENT"])


class SystemCalls(CommandTest):
    """What strace counts while `count` tokens are decoded after the first."""

    def setUp(self):
        super().setUp()
        trial = ["strace", "-o", self.path("trial"), "true"]
        if shutil.which("strace") is None or subprocess.run(trial, check=False).returncode != 0:
            self.skipTest("strace is not installed, or may not trace")

    def calls(self, count, threads):
        trace = self.path("trace")
        self.json("run", GEMMA, "--tokens", 5, "-n", count, "--ignore-eos", "--threads", threads,
                  under=["strace", "-f", "-o", trace])
        with open(trace, encoding="utf-8") as file:
            return re.findall(r"^\d+ +(\w+)\(", file.read(), re.MULTILINE)

    def test_one_thread_decodes_without_any(self):
        # Within one page of 64 positions.
        self.assertEqual(sorted(self.calls(60, 1)), sorted(self.calls(10, 1)))

    def test_two_threads_only_wait_for_each_other(self):
        # The C heap's requests depend on which thread digested which weights at opening.
        others = {"futex", "sched_yield", "brk", "mmap", "munmap", "mprotect", "madvise"}
        few, many = self.calls(10, 2), self.calls(60, 2)
        self.assertEqual(sorted(call for call in many if call not in others),
                         sorted(call for call in few if call not in others))
        # Threads that find each other awake make no call. On a busy machine one of them may have
        # lost its core, so the best of several runs counts.
        best = min(self.calls(60, 2).count("futex") - few.count("futex") for _ in range(5))
        print(f"system calls of 50 tokens on 2 threads: {best} to wait and wake, no others")
        self.assertLess(best, 50)
