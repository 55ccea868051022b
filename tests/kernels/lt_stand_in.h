// A cuBLASLt for tests, in the form of its functions: it computes nothing, answers as a test says,
// and remembers what it was told. One at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/kernels/cuda/cublaslt_plans.h"

#ifdef STASIS_CUBLASLT

namespace lt_stand_in {

using Configuration = std::array<uint32_t, stasis::kernels::device::kLtConfiguration>;

// What its rules propose.
struct Proposal {
    Configuration configuration;
    cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
    cublasStatus_t check = CUBLAS_STATUS_SUCCESS;
    size_t workspace_bytes = 0; // as the check finds it
};

using Attributes = std::map<int, std::vector<unsigned char>>; // by their number

struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t stride;
};

// A product that was enqueued.
struct Run {
    Attributes attributes;
    Layout a, b, c, d;
    const void *a_data, *b_data, *c_data;
    void *d_data, *workspace;
    float alpha, beta;
    size_t workspace_bytes;
    cudaStream_t stream;
    Configuration configuration;
};

struct Library {
    size_t version = 130100;
    std::vector<Proposal> proposals;
    cublasStatus_t choosing = CUBLAS_STATUS_SUCCESS, running = CUBLAS_STATUS_SUCCESS;
    int fail_at = -1; // which call that makes or sets something fails; -1: none

    int alive = 0; // handles, descriptions: made and not yet dropped
    int calls = 0; // that make or set something
    std::vector<Run> runs;
    std::vector<Attributes> chosen_for; // the product's, when its algorithm was asked for
    Attributes preferences;
};

Library &library();
stasis::kernels::device::LtCalls calls();

template <typename T> T value(const Attributes &attributes, int name) {
    T found = {};
    const auto at = attributes.find(name);
    if (at != attributes.end() && at->second.size() == sizeof found) {
        std::memcpy(&found, at->second.data(), sizeof found);
    }
    return found;
}

} // namespace lt_stand_in

#endif
