// Errors and argument checks at the boundary; see boundary.h. Must not know sessions, models or
// files.
#include "abi/boundary.h"
#include "abi/message.h"

#include <cassert>
#include <cstring>
#include <new>
#include <stdexcept>

#include <pthread.h>

namespace stasis::abi {

namespace {

// The runtime's statuses are the public ones, number by number, so that a cast converts them.
constexpr bool same(Status status, stasis_status number) {
    return static_cast<stasis_status>(status) == number;
}
static_assert(same(Status::ok, STASIS_OK));
static_assert(same(Status::invalid_argument, STASIS_INVALID_ARGUMENT));
static_assert(same(Status::not_found, STASIS_NOT_FOUND));
static_assert(same(Status::io, STASIS_IO));
static_assert(same(Status::no_memory, STASIS_NO_MEMORY));
static_assert(same(Status::unsupported, STASIS_UNSUPPORTED));
static_assert(same(Status::corrupt, STASIS_CORRUPT));
static_assert(same(Status::version, STASIS_VERSION));
static_assert(same(Status::model_mismatch, STASIS_MODEL_MISMATCH));
static_assert(same(Status::full, STASIS_FULL));
static_assert(same(Status::busy, STASIS_BUSY));
static_assert(same(Status::cancelled, STASIS_CANCELLED));
static_assert(same(Status::diverged, STASIS_DIVERGED));
static_assert(same(Status::device, STASIS_DEVICE));
static_assert(same(Status::stopped, STASIS_STOPPED));
static_assert(same(Status::internal, STASIS_INTERNAL));
static_assert(same(Status::nonfinite, STASIS_NONFINITE));
static_assert(same(Status::pool_exhausted, STASIS_POOL_EXHAUSTED));
static_assert(same(Status::buffer_too_small, STASIS_BUFFER_TOO_SMALL));
static_assert(same(Status::conflict, STASIS_CONFLICT));
static_assert(same(Status::no_token, STASIS_NO_TOKEN));
static_assert(same(Status::timeout, STASIS_TIMEOUT));

constexpr const char *kStatusNames[] = {"OK",
                                        "INVALID_ARGUMENT",
                                        "NOT_FOUND",
                                        "IO",
                                        "NO_MEMORY",
                                        "UNSUPPORTED",
                                        "CORRUPT",
                                        "VERSION",
                                        "MODEL_MISMATCH",
                                        "FULL",
                                        "BUSY",
                                        "CANCELLED",
                                        "DIVERGED",
                                        "DEVICE",
                                        "STOPPED",
                                        "INTERNAL",
                                        "NONFINITE",
                                        "POOL_EXHAUSTED",
                                        "BUFFER_TOO_SMALL",
                                        "CONFLICT",
                                        "NO_TOKEN",
                                        "TIMEOUT"};
static_assert(std::size(kStatusNames) == STASIS_TIMEOUT + 1);

// Fills `error`, unless it is null, and returns the status.
stasis_status report(stasis_error *error, stasis_status status, const char *message) noexcept {
    if (error != nullptr) {
        error->status = status;
        write_message(message, error->message, sizeof error->message);
    }
    return status;
}

// Whether a thread is inside a call. Not thread_local: a library that is loaded late may be refused
// static memory of that kind, and of the other kind a thread cannot be refused it.
class InsideMark {
  public:
    InsideMark() : made_(pthread_key_create(&key_, nullptr) == 0) {}
    ~InsideMark() {
        if (made_) {
            pthread_key_delete(key_);
        }
    }
    InsideMark(const InsideMark &) = delete;
    InsideMark &operator=(const InsideMark &) = delete;

    bool get() const { return made_ && pthread_getspecific(key_) != nullptr; }
    // Returns whether it is set now: taking it away cannot fail.
    bool set(bool inside) const {
        return made_ && pthread_setspecific(key_, inside ? this : nullptr) == 0;
    }

  private:
    pthread_key_t key_{};
    const bool made_;
};

const InsideMark &inside() {
    static const InsideMark mark;
    return mark;
}

} // namespace

// A call whose thread cannot be marked waits for nobody, as if it were nested.
Caller::Caller() : before_(inside().get()), nested_(!inside().set(true) || before_) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    fegetenv(&environment_);
    fesetenv(FE_DFL_ENV);
}

Caller::~Caller() {
    fesetenv(&environment_);
    pthread_setcancelstate(cancel_state_, nullptr);
    inside().set(before_);
}

Caller::Lent::Lent(const fenv_t &environment, bool nested) {
    fegetenv(&contract_);
    fesetenv(&environment);
    inside().set(nested);
}

Caller::Lent::~Lent() {
    inside().set(true);
    fesetenv(&contract_);
}

stasis_status report_success(stasis_error *error) noexcept {
    return report(error, STASIS_OK, "");
}

// Converts each type that the library may throw; anything else is a defect and becomes INTERNAL.
stasis_status report_failure(stasis_error *error) noexcept {
    assert(std::current_exception() != nullptr);
    try {
        throw;
    } catch (const Error &failure) {
        return report(error, static_cast<stasis_status>(failure.status()), failure.what());
    } catch (const std::bad_alloc &) {
        return report(error, STASIS_NO_MEMORY, "an allocation failed");
    } catch (const std::length_error &) {
        return report(error, STASIS_NO_MEMORY, "a size is beyond what memory can hold");
    } catch (const std::exception &failure) {
        return report(error, STASIS_INTERNAL, failure.what());
    } catch (...) {
        return report(error, STASIS_INTERNAL, "an exception of unknown type");
    }
}

void take_busy(std::atomic<bool> &flag, const char *object) {
    if (flag.exchange(true, std::memory_order_acquire)) {
        fail(Status::busy, "another call is running on this %s", object);
    }
}

void require(const void *pointer, const char *name) {
    if (pointer == nullptr) {
        fail(Status::invalid_argument, "%s is NULL", name);
    }
}

void require_path(const char *path, const char *name) {
    require(path, name);
    if (*path == '\0') {
        fail(Status::invalid_argument, "%s is empty: expected the path of a file or directory",
             name);
    }
}

void require_array(const void *pointer, size_t count, const char *name) {
    if (pointer == nullptr && count != 0) {
        fail(Status::invalid_argument, "%s is NULL with a count of %zu", name, count);
    }
}

void require_flags(uint32_t given, uint32_t known) {
    if ((given & ~known) != 0) {
        fail(Status::unsupported, "flags 0x%x: this version knows only 0x%x", given, known);
    }
}

void require_zero(uint32_t reserved, const char *name) {
    if (reserved != 0) {
        fail(Status::unsupported, "%s.reserved is %u: expected 0", name, reserved);
    }
}

void require_room(size_t needed, size_t capacity, size_t *count, const char *name) {
    assert(count != nullptr);
    *count = needed;
    if (needed > capacity) {
        fail(Status::buffer_too_small, "%s has room for %zu elements, %zu are needed", name,
             capacity, needed);
    }
}

void write_text(std::string_view from, char *text, size_t capacity, size_t *length) {
    require_room(from.size(), capacity, length, "the buffer");
    require_array(text, from.size(), "the buffer");
    if (!from.empty()) {
        std::memcpy(text, from.data(), from.size());
    }
}

void write_field(std::string_view from, char *field, size_t size) noexcept {
    assert(size > 0);
    size_t length = from.size();
    if (length >= size) {
        length = size - 1;
        while (length > 0 && (static_cast<uint8_t>(from[length]) & 0xC0U) == 0x80U) {
            --length; // the byte at the cut continues a character
        }
    }
    std::memcpy(field, from.data(), length);
    std::memset(field + length, 0, size - length);
}

stasis_digest to_abi(const Digest &digest) {
    stasis_digest result;
    static_assert(sizeof result.bytes == sizeof digest.bytes);
    std::memcpy(result.bytes, digest.bytes.data(), sizeof result.bytes);
    return result;
}

} // namespace stasis::abi

uint32_t stasis_version(void) {
    return STASIS_HEADER_VERSION;
}

const char *stasis_status_name(stasis_status status) {
    const bool known = status >= STASIS_OK && status <= STASIS_TIMEOUT;
    return known ? stasis::abi::kStatusNames[status] : "UNKNOWN";
}
