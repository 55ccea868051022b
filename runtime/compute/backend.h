// What computes: one table of functions, which the CPU and a device both fill. The steps of a layer
// stand in the order in which forward.cpp calls them, and all that they hand to each other lies in
// the pass's scratch, which is the backend's own. Chosen when a model is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/pass.h"

namespace stasis {

// Where in a pass the residual stream is added to.
enum class After { embedding, attention, mlp };

inline constexpr size_t kDrawnMost = 16; // rows of draw_ahead

// For each row of draw_ahead: the token drawn after it, and the layer that met what is not finite
// (C9), 0 if a logit did, UINT32_MAX: none. Rows after such a row mean nothing.
struct DrawnRows {
    std::vector<uint32_t> tokens, failures;
};

// Shapes: T rows of the pass, H hidden, Q = heads * head_dim, K = kv_heads * head_dim,
// I intermediate, V vocabulary.
struct Backend {
    void (*make_scratch)(Pass &pass);
    // Makes room in the scratch. Throws Error(no_memory).
    void (*fit)(Pass &pass, size_t rows);
    // Returns the bytes of memory that the scratch takes.
    uint64_t (*size_bytes)(const Pass &pass);
    // Throws Error(device) in another process than the one that opened the device.
    void (*check_process)(const Network &network);
    // Calls run_layers, and leaves pass.hidden and failed sequences. Throws Error(cancelled),
    // Error(device), Error(no_memory).
    void (*run)(Pass &pass, const Watch &watch, uint64_t done, uint64_t total);

    void (*embed)(Pass &pass); // tokens to the stream [T][H]
    // Adds what was computed since to the stream, through a further norm where the architecture has
    // one (not after the embedding), and norms the stream for what comes next [T][H]. After the
    // last MLP that is the final norm, whose result is the final hidden state.
    void (*residual)(Pass &pass, After after, size_t layer);
    void (*project_heads)(Pass &pass,
                          size_t layer); // q [T][Q], k and v [T][K] of the normed stream
    // Norms, where the architecture has them, and RoPE of q and k; keys and values go to their
    // pages. Marks sequences that met what is not finite.
    void (*finish_heads)(Pass &pass, size_t layer);
    void (*attend)(Pass &pass, size_t layer);         // C5, over the pages of each sequence: [T][Q]
    void (*project_output)(Pass &pass, size_t layer); // [T][H]
    void (*gated_product)(Pass &pass,
                          size_t layer); // activation(gate) * up of the normed stream [T][I]
    void (*project_down)(Pass &pass, size_t layer); // [T][H]

    // Logits [rows][V] of final hidden states [rows][H]; both on the host.
    void (*logits)(Pass &pass, const uint16_t *hidden, size_t rows, float *logits);

    // Whether draw_ahead draws by such settings.
    bool (*draws_ahead)(const Sampling &sampling);
    // Computes the rows of the pass's one sequence, kDrawnMost at most, whose first token is set
    // and whose others are those drawn. Leaves pass.hidden of every row.
    void (*draw_ahead)(Pass &pass, const Sampling &sampling, DrawnRows &drawn);

    // Prepares the products of all layers under the device profile, and returns its id. Throws
    // Error(unsupported), Error(device).
    std::string (*open_profile)(const Network &network);
};

extern const Backend kCpuBackend, kDeviceBackend;

} // namespace stasis
