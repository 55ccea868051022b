// Replies of a model that wait until others have made place in its memory. Must not know what
// they are.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace serve {

// Who goes computes, until `ended` or `wait` is called for it, once. Each that ends lets one go, so
// that none waits where nothing runs, and a second one if none was short of memory since the end
// before, so that more run again after a shortage. Any thread; a Go must not throw, nor call
// `release`.
class Line {
  public:
    using Go = std::function<void()>;
    // One of those that an owner has in the line, which may be the owner itself.
    struct Who {
        Who(const void *alone) : owner(alone), one(alone) {}
        Who(const void *of, const void *which) : owner(of), one(which) {}
        const void *owner, *one;
    };

    // Lets one go, now if nobody waits.
    void join(Who who, Go go);
    void ended();
    // One that ended for want of memory goes again when another one ends; before all that wait, if
    // it `holds` memory. Where nothing else runs, the next goes, for which there may be enough.
    // False: all have been tried, and none has `moved` on, or nobody waits; then it goes on as
    // before.
    bool wait(Who who, Go go, bool holds, bool moved);
    // Those of the owner go now.
    void release(const void *owner);

    size_t waiting() const;

  private:
    struct Waiting {
        Who who;
        Go go;
    };

    mutable std::mutex mutex_;
    std::deque<Waiting> waiting_;
    size_t running_ = 0;
    size_t stalled_ = 0;           // that were tried one after the other, and have not moved on
    bool short_ = false;           // somebody has waited since the last end
    const void *second_ = nullptr; // keeps its place if it must wait again
};

} // namespace serve
