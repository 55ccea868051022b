// What the CUDA module makes of cuBLASLt, without a GPU: how its library is opened, which algorithm
// is taken, what the id says, what a product is enqueued with. On a stand-in for the library, and,
// where the toolkit's own is on the machine, on its functions that need no device.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <thread>

#include "tests/data_files.h"
#include "tests/kernels/lt_stand_in.h"
#include "tests/places.h"

#ifndef STASIS_CUBLASLT

TEST_CASE("cublaslt: algorithms, ids and errors") {
    STASIS_SKIP("cublasLt.h is not on this machine, so this was not compiled");
}

#else

using lt_stand_in::library;
using lt_stand_in::Proposal;
using lt_stand_in::Run;
using lt_stand_in::value;
using stasis::kernels::DeviceError;
using stasis::kernels::DeviceProduct;
using stasis::kernels::DeviceShape;
using stasis::kernels::device::LtCalls;
using stasis::kernels::device::LtDevice;
using stasis::kernels::device::LtPlans;
namespace device = stasis::kernels::device;

namespace {

constexpr LtDevice kDevice = {1, 9, 0, 132};
constexpr DeviceShape kLarge = {512, 2560, 2048, true}, kSmall = {128, 64, 64, false};
// id, tile, splits, reduction, swizzle, option, stages, inner shape, cluster
const lt_stand_in::Configuration kFast = {66, 20, 1, 0, 1, 0, 36, 0, 3};

struct Chosen {
    LtPlans plans;
    bool done = false;
    DeviceError error;

    explicit Chosen(const std::vector<DeviceShape> &shapes, const LtDevice &on = kDevice)
        : plans(lt_stand_in::calls(), on) {
        done = plans.choose(shapes.data(), shapes.size(), &error);
    }
    std::string id() const {
        char text[stasis::kernels::kDeviceIdBytes];
        std::memset(text, '?', sizeof text);
        plans.write_id(text);
        return text;
    }
};

// Memory that is only pointed to.
template <typename T> T *at(uintptr_t address) {
    return reinterpret_cast<T *>(address);
}

DeviceProduct product_of(const DeviceShape &shape, uintptr_t base = 0x10000) {
    DeviceProduct task;
    task.x = at<uint16_t>(base), task.rows = shape.rows, task.count = 1, task.pinned = true;
    task.w[0] = {at<uint16_t>(base + 0x1000), nullptr,
                 shape.bias ? at<float>(base + 0x2000) : nullptr, shape.outputs, shape.depth};
    task.y[0] = at<float>(base + 0x3000);
    return task;
}

std::string refusal(Chosen &chosen, const DeviceProduct &task, int kind = DeviceError::failed) {
    DeviceError error;
    CHECK(!chosen.plans.enqueue(task, 0, at<void>(0x100), nullptr, &error));
    CHECK(error.kind == kind);
    return error.message;
}

std::string names_file(const std::string &name) {
    return std::string(places::binary) + "/tests/device/" + name;
}

std::string opening(const std::string &file, bool expected, LtCalls *calls) {
    DeviceError error;
    CHECK(device::open_library(file.c_str(), calls, &error) == expected);
    CHECK(error.kind == (expected ? DeviceError::none : DeviceError::unavailable));
    return error.message;
}

} // namespace

TEST_CASE("cublaslt: the first algorithm that splits nothing and passes the check is taken") {
    library() = {};
    lt_stand_in::Configuration split = kFast, reduced = kFast, second = kFast;
    split[2] = 4, reduced[3] = CUBLASLT_REDUCTION_SCHEME_INPLACE, second[0] = 67;
    library().proposals = {
        {kFast, CUBLAS_STATUS_NOT_SUPPORTED},
        {split},
        {reduced},
        {kFast, CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ARCH_MISMATCH},
        {kFast, CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_SUCCESS, device::kLtWorkspaceBytes + 1},
        {second, CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_SUCCESS, device::kLtWorkspaceBytes},
        {kFast}};
    Chosen chosen({kLarge});
    REQUIRE_MESSAGE(chosen.done, std::string(chosen.error.message));
    CHECK(chosen.plans.enqueue(product_of(kLarge), 0, at<void>(0x100), nullptr, &chosen.error));
    REQUIRE(library().runs.size() == 1);
    CHECK(library().runs[0].configuration == second);
}

TEST_CASE("cublaslt: the library is told what is promised, and that nothing may be split") {
    library() = {};
    library().proposals = {{kFast}};
    const Chosen chosen({kLarge, kSmall, kLarge});
    REQUIRE(chosen.done);
    const auto &told = library().preferences;
    CHECK(told.size() == 6);
    CHECK(value<uint64_t>(told, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) == 32 << 20);
    REQUIRE(told.count(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) == 1);
    CHECK(value<uint32_t>(told, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) == 0);
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        CHECK(value<uint32_t>(told, name) == 16);
    }
    REQUIRE(library().chosen_for.size() == 2); // two equal shapes are one
    const auto &biased = library().chosen_for[0], &plain = library().chosen_for[1];
    CHECK(value<uintptr_t>(biased, CUBLASLT_MATMUL_DESC_BIAS_POINTER) == 16);
    CHECK(plain.count(CUBLASLT_MATMUL_DESC_EPILOGUE) == 0);
    CHECK(plain.count(CUBLASLT_MATMUL_DESC_BIAS_POINTER) == 0);
}

TEST_CASE("cublaslt: a shape without an algorithm is named") {
    library() = {};
    for (const bool split : {false, true}) {
        library().proposals.clear();
        if (split) {
            library().proposals = {{{66, 20, 2, 2, 1, 0, 36, 0, 3}}};
        }
        const Chosen chosen({kLarge});
        CHECK(!chosen.done);
        CHECK(chosen.error.kind == DeviceError::failed);
        CHECK(std::string(chosen.error.message) ==
              "cuda:1: cuBLASLt has no algorithm for a product of 512 rows, 2560 outputs and depth "
              "2048 with a bias that does not split it (of " +
                  std::to_string(library().proposals.size()) + ")");
        library().choosing = CUBLAS_STATUS_NOT_SUPPORTED; // its other way to say that
    }
    library().choosing = CUBLAS_STATUS_INVALID_VALUE;
    const Chosen chosen({kSmall});
    CHECK(std::string(chosen.error.message) == "cuda:1: cublasLtMatmulAlgoGetHeuristic, a product "
                                               "of 128 rows, 64 outputs and depth 64: some status");
}

TEST_CASE("cublaslt: whatever call fails, all that was made is dropped") {
    library() = {};
    library().proposals = {{kFast}};
    { const Chosen whole({kLarge, kSmall}); }
    const int calls = library().calls;
    CHECK(calls > 15);
    CHECK(library().alive == 0);
    for (int i = 0; i < calls; ++i) {
        INFO("call ", i);
        library().calls = 0, library().fail_at = i;
        {
            const Chosen chosen({kLarge, kSmall});
            CHECK(!chosen.done);
            CHECK(chosen.error.kind == DeviceError::failed);
            CHECK(
                std::regex_match(chosen.error.message,
                                 std::regex("cuda:1: cublasLt\\w+(, a product .*)?: some status")));
        }
        CHECK(library().alive == 0);
    }
}

// The text is in snapshots: what it is for given algorithms must stay.
TEST_CASE("cublaslt: the id names version, device and a hash of shapes and algorithms") {
    library() = {};
    library().proposals = {{kFast}};
    CHECK(Chosen({kLarge, kSmall}).id() == "cublaslt 13.1.0 sm_90 132 SMs 8345872dd586367e");
    CHECK(Chosen({kLarge, kSmall, kLarge}).id() == Chosen({kLarge, kSmall}).id());
    CHECK(Chosen({kLarge, kSmall}, {0, 9, 0, 132}).id() == Chosen({kLarge, kSmall}).id());
    library().version = SIZE_MAX;
    const std::string longest = Chosen({kLarge}, {0, UINT32_MAX, UINT32_MAX, UINT32_MAX}).id();
    CHECK(longest.size() < stasis::kernels::kDeviceIdBytes - 1); // not cut off
    CHECK(std::regex_match(longest, std::regex("[ -~]+ [0-9a-f]{16}")));
}

TEST_CASE("cublaslt: whatever the bits depend on changes the id") {
    library() = {};
    library().proposals = {{kFast}};
    std::set<std::string> ids = {Chosen({kLarge}).id()};
    size_t count = 1;
    const auto add = [&](const Chosen &chosen) {
        CHECK(chosen.done);
        ids.insert(chosen.id());
        CHECK(ids.size() == ++count);
    };
    add(Chosen({kLarge}, {1, 8, 0, 132}));
    add(Chosen({kLarge}, {1, 9, 1, 132}));
    add(Chosen({kLarge}, {1, 9, 0, 114}));
    add(Chosen({{513, 2560, 2048, true}}));
    add(Chosen({{512, 2561, 2048, true}}));
    add(Chosen({{512, 2560, 2049, true}}));
    add(Chosen({{512, 2560, 2048, false}}));
    add(Chosen({kLarge, kSmall}));
    library().version = 130101;
    add(Chosen({kLarge}));
    for (size_t i = 0; i < device::kLtConfiguration; ++i) {
        INFO("number ", i);
        library().proposals = {{kFast}};
        if (i == 3) {
            continue; // a reduction is never taken
        }
        library().proposals[0].configuration[i] = i == 2 ? 0 : kFast[i] + 0x101;
        add(Chosen({kLarge}));
    }
}

TEST_CASE("cublaslt: a product is enqueued as its shape was described") {
    library() = {};
    library().proposals = {{kFast}};
    Chosen chosen({kSmall, kLarge});
    auto *stream = at<CUstream_st>(0x7000);
    DeviceProduct task = product_of(kLarge);
    task.count = 2, task.w[1] = task.w[0], task.w[1].bias = at<float>(0x5550);
    task.w[1].w = at<uint16_t>(0x6660), task.y[1] = at<float>(0x7770);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(chosen.plans.enqueue(task, i, at<void>(0x100), stream, &chosen.error));
        REQUIRE(library().runs.size() == i + 1);
        const Run &run = library().runs[i];
        const auto laid = [](const lt_stand_in::Layout &layout, cudaDataType type, size_t rows,
                             size_t columns) {
            return layout.type == type && layout.rows == rows && layout.columns == columns &&
                   layout.stride == static_cast<int64_t>(rows);
        };
        CHECK(laid(run.a, CUDA_R_16BF, 2048, 2560));
        CHECK(laid(run.b, CUDA_R_16BF, 2048, 512));
        CHECK(laid(run.c, CUDA_R_32F, 2560, 512));
        CHECK(laid(run.d, CUDA_R_32F, 2560, 512));
        CHECK(run.a_data == task.w[i].w);
        CHECK(run.b_data == task.x);
        CHECK(run.c_data == task.y[i]);
        CHECK(run.d_data == task.y[i]);
        CHECK(run.alpha == 1.0F);
        CHECK(run.beta == 0.0F);
        CHECK(run.workspace == at<void>(0x100));
        CHECK(run.workspace_bytes == device::kLtWorkspaceBytes);
        CHECK(run.stream == stream);
        const auto &told = run.attributes;
        CHECK(told.size() == 6);
        CHECK(value<int>(told, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_32F);
        CHECK(value<int>(told, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_32F);
        CHECK(value<int>(told, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T);
        CHECK(value<int>(told, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BIAS);
        CHECK(value<int>(told, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) == CUDA_R_32F);
        CHECK(value<const float *>(told, CUBLASLT_MATMUL_DESC_BIAS_POINTER) == task.w[i].bias);
    }
    CHECK(chosen.plans.enqueue(product_of(kSmall), 0, at<void>(0x100), stream, &chosen.error));
    CHECK(library().runs[2].attributes.size() == 3); // no bias
    CHECK(library().runs[2].a.columns == 64);
}

TEST_CASE("cublaslt: products that were not pinned, or lie askew, are refused") {
    library() = {};
    library().proposals = {{kFast}};
    Chosen chosen({kLarge, kSmall});
    for (const DeviceShape &other :
         {DeviceShape{511, 2560, 2048, true}, DeviceShape{512, 2552, 2048, true},
          DeviceShape{512, 2560, 2040, true}, DeviceShape{512, 2560, 2048, false}}) {
        CHECK(refusal(chosen, product_of(other)) ==
              "cuda:1: a product of " + std::to_string(other.rows) + " rows, " +
                  std::to_string(other.outputs) + " outputs and depth " +
                  std::to_string(other.depth) + (other.bias ? " with a bias" : "") +
                  " was not pinned");
    }
    for (int which = 0; which < 4; ++which) {
        DeviceProduct task = product_of(kLarge);
        task.x += which == 0 ? 4 : 0, task.w[0].w += which == 1 ? 4 : 0;
        task.w[0].bias += which == 2 ? 2 : 0, task.y[0] += which == 3 ? 2 : 0;
        CHECK(refusal(chosen, task).find("a pointer that is not 16-byte aligned") !=
              std::string::npos);
    }
    CHECK(library().runs.empty());
    library().running = CUBLAS_STATUS_EXECUTION_FAILED;
    CHECK(refusal(chosen, product_of(kSmall)) == "cuda:1: cublasLtMatmul, a product of 128 rows, "
                                                 "64 outputs and depth 64: some status");
    library().running = CUBLAS_STATUS_ALLOC_FAILED;
    CHECK(refusal(chosen, product_of(kSmall), DeviceError::no_memory).find(": no room") !=
          std::string::npos);
}

TEST_CASE("cublaslt: threads that enqueue at once each get their own bias") {
    library() = {};
    library().proposals = {{kFast}};
    Chosen chosen({kLarge});
    constexpr int kTimes = 500;
    const auto enqueue = [&](uintptr_t base) {
        for (int i = 0; i < kTimes; ++i) {
            DeviceError error;
            chosen.plans.enqueue(product_of(kLarge, base), 0, at<void>(base), nullptr, &error);
        }
    };
    std::thread other(enqueue, 0x80000);
    enqueue(0x10000);
    other.join();
    int wrong = 0;
    for (const Run &run : library().runs) {
        const auto bias = value<uintptr_t>(run.attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
        wrong += bias == reinterpret_cast<uintptr_t>(run.b_data) + 0x2000 ? 0 : 1;
    }
    CHECK(library().runs.size() == 2 * kTimes);
    CHECK(wrong == 0);
}

TEST_CASE(
    "cublaslt: a library that is missing, lacks a function or is another version is refused") {
    LtCalls calls;
    const std::string whole = names_file("liblt_names.so"), less = names_file("liblt_less.so");
    const std::string major = std::to_string(CUBLAS_VER_MAJOR);
    CHECK(std::string(device::kLtFile) == "libcublasLt.so." + major);
    CHECK(opening("libcublasLt.so.nowhere", false, &calls)
              .rfind("the device profile needs cuBLASLt: libcublasLt.so.nowhere: ", 0) == 0);
    CHECK(opening(less, false, &calls) ==
          "the device profile needs cuBLASLt: " + less + " has no cublasLtMatmul");
    const auto opening_version = [&](int version, bool expected) {
        setenv("STAND_IN_LT_VERSION", std::to_string(version).c_str(), 1);
        return opening(whole, expected, &calls);
    };
    CHECK(opening_version(90203, false) ==
          "the device profile needs cuBLASLt " + major + ": " + whole + " is version 9.2.3");
    CHECK(opening_version(CUBLAS_VER_MAJOR * 10000 + 10000, false) != "");
    CHECK(opening_version(CUBLAS_VER_MAJOR * 10000 + 9999, true) == "");
    CHECK(calls.version() == CUBLAS_VER_MAJOR * 10000 + 9999);
    CHECK((calls.run != nullptr));
    unsetenv("STAND_IN_LT_VERSION");
}

// With the toolkit's library only what needs a device is the stand-in's.
TEST_CASE("cublaslt: the toolkit's own library has every function, and knows what it is told") {
    LtCalls calls;
    DeviceError error;
    if (!device::open_library(device::kLtFile, &calls, &error)) {
        STASIS_SKIP(std::string(device::kLtFile) + " is not on this machine: " + error.message);
    }
    CHECK(calls.version() / 10000 == CUBLAS_VER_MAJOR);
    CHECK(std::string(calls.status_name(CUBLAS_STATUS_NOT_SUPPORTED)) ==
          "CUBLAS_STATUS_NOT_SUPPORTED");
    library() = {};
    library().proposals = {{kFast}};
    const LtCalls stand_in = lt_stand_in::calls();
    calls.create = stand_in.create, calls.destroy = stand_in.destroy;
    calls.configuration = stand_in.configuration, calls.check = stand_in.check;
    calls.choose = [](auto, auto, auto, auto, auto, auto, auto, int,
                      cublasLtMatmulHeuristicResult_t results[], int *count) {
        results[0] = {};
        results[0].state = CUBLAS_STATUS_SUCCESS;
        *count = 1;
        return CUBLAS_STATUS_SUCCESS;
    };
    {
        LtPlans plans(calls, kDevice);
        const DeviceShape shapes[] = {kLarge, kSmall};
        CHECK_MESSAGE(plans.choose(shapes, 2, &error), std::string(error.message));
    }
    CHECK(library().alive == 0);
}

#endif
