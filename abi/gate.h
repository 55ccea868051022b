// Who uses a session, and who waits for it. Calls pass one at a time. Those that read, and the
// passes of a generation or a scheduler, go in the order in which they came: a reader waits for at
// most one pass, and a pass for the readers before it, each once. All others never wait for long,
// and are told that the session is busy instead. Knows neither sessions nor threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stasis::abi {

class Gate {
  public:
    // Whose tokens come next, which nothing else may change.
    enum class Owner { none, generation, scheduler };
    enum class Answer { in, busy, generation, scheduler }; // in, or why not

    Gate() = default;
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;

    // Enters for a short call, for which others wait. For one that is `alone`, which may take its
    // time, nobody waits but a pass. One that `changes` is refused while there is an owner; and one
    // that does not `wait`, where it would have to.
    Answer enter(bool alone, bool changes, bool waits);
    // Ends what entered. Returns whether a pass that was asked for may begin now.
    bool leave() noexcept;

    // Begins a pass, for which those wait who enter from now on. Unless it `waits` for those who
    // entered before, returns false if there are any.
    bool begin_pass(bool waits);
    // The same for those who ask again: once it has returned false, the pass comes next. Until it
    // has begun, end_pass takes that back.
    bool try_pass() noexcept;
    // Without effect where there is no pass, nor one that was asked for.
    void end_pass() noexcept;

    void set_owner(Owner owner) noexcept;
    // Takes the owner away. If nobody is in, begins a pass instead, and returns true.
    bool end_owner() noexcept;
    Owner owner() const;
    bool held() const; // by anything at all

  private:
    Answer refusal() const;
    void pass_on() noexcept;

    static constexpr uint64_t kNone = UINT64_MAX;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Owner owner_ = Owner::none;
    uint64_t given_ = 0, served_ = 0; // tickets: whose is `served_` is in, or comes next
    uint64_t alone_ = kNone;          // the ticket of a call that others do not wait for
    uint64_t pass_ = kNone;           // tickets from this one on wait for a pass
};

} // namespace stasis::abi
