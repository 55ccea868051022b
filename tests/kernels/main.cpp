// Entry point of the kernel tests, which also time the kernels: test_kernels --bench [part of
// name].
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <string>

#include "tests/kernels/bench.h"

int main(int argc, char **argv) {
    if (argc > 1 && std::string(argv[1]) == "--bench") {
        bench(argc > 2 ? argv[2] : "");
        return 0;
    }
    return doctest::Context(argc, argv).run();
}
