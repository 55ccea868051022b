// States made up for the format's tests, and the files they are saved to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "forgery.h"
#include "format/state/state.h"
#include "format/writer.h"
#include "tests/seal.h"

namespace stasis::format {

struct Shape {
    uint64_t position = 150;
    uint32_t layers = 3;
    uint32_t kv_heads = 2;
    uint32_t head_dim = 4;
    uint32_t hidden_size = 10;
    uint32_t vocabulary = 50;
    uint32_t page_positions = 32;
    uint32_t window = 40; // of the last group; with one layer there is only one group
    uint64_t window_retain = 0;
    uint64_t seed = 1;   // of tokens and numbers; those of a position do not depend on the length
    uint64_t common = 0; // positions below it are those of seed 1
    // Not 0: every second layer, from the first on, is recurrent, with a state at the end and at
    // each multiple of so many positions.
    uint64_t checkpoints = 0;
    uint32_t value_dim = 5; // of a recurrent layer's heads
    // The last two layers that are not recurrent share keys and values, and those of the last group
    // have one KV head more and a head_dim larger by 6 than the state says.
    bool uneven = false;
};

// A whole state with every field in use; pages before the window and its retention are released.
State sample_state(const Shape &shape);
// The same with other numbers than the shape's.
inline State sample_state(Shape shape, uint64_t position, uint64_t seed, uint64_t common) {
    shape.position = position;
    shape.seed = seed;
    shape.common = common;
    return sample_state(shape);
}
// The state with data of a host: a value of no bytes, a short one, and one of `bytes` bytes, which
// are others for another seed.
State with_data(State state, size_t bytes, uint8_t seed = 1);
std::vector<float> sample_row(const Shape &shape); // the logits of sample_state

// One partial page in each group, and padding after most sections.
inline constexpr Shape kHybrid{.position = 100, .layers = 5, .checkpoints = 30};
inline constexpr Shape kUneven{.position = 100, .layers = 5, .uneven = true};
inline constexpr Shape kSmall{.position = 37, .layers = 2, .kv_heads = 1, .head_dim = 3};
State small_state(uint64_t position); // of that shape, after so many tokens
const Bytes &small_file();            // of that shape, with its row of logits

// A session's state after `position` tokens, of which the first `common` are those of seed 1.
State course(uint64_t position, uint64_t seed = 1, uint64_t common = 0);

// Fails the running test case, naming the field, unless both hold the same bits.
void check_same(const State &a, const State &b);

// Fails the running test case unless the file is refused as CORRUPT, for this reason, without
// asking for more memory at once than a few times its size.
void check_refused(const std::string &why, const Bytes &bytes);
void refused(const char *why, const Change &change); // the same of the small file, forged

// Opens only: what opening promises to check is refused before a page is read.
bool opens(const Bytes &bytes);

// A change that makes settings which the sampler refuses, and what is said of it.
struct BadSetting {
    std::string message;
    void (*change)(Sampling &sampling); // of sample_state, vocabulary at least 3 and at most 50
};
std::vector<BadSetting> bad_settings();

// A new empty directory, removed at the end.
class ScratchFolder {
  public:
    ScratchFolder();
    ~ScratchFolder();
    std::string path(const std::string &name) const { return folder_ + "/" + name; }
    std::vector<std::string> names() const; // of the files in it, sorted

  private:
    std::string folder_;
};

// An element's JSON, in memory of the size that was asked for first.
std::string element_text(const Snapshot &snapshot, uint32_t element);

Bytes read_bytes(const std::string &path);
void write_bytes(const std::string &path, const Bytes &bytes);
Bytes saved(const State &state, const SaveOptions &options = {});

// Opens and reads everything; the message of the error, with its status before it, or "".
std::string refusal(const Bytes &bytes);

// The largest memory block asked for since the last call.
size_t largest_allocation();
// From now on every request for memory fails, or none.
void refuse_memory(bool refuse);

} // namespace stasis::format
