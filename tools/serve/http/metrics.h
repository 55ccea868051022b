// Numbers that a server counts, and their text for Prometheus (exposition format 0.0.4). Must not
// know what is counted.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace serve::http {

using Labels = std::vector<std::pair<std::string, std::string>>; // names and values

class Counter { // only grows
  public:
    void add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
    double value() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<double> value_{0};
};

class Gauge {
  public:
    void set(double value) { value_.store(value, std::memory_order_relaxed); }
    void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
    double value() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<double> value_{0};
};

class Histogram {
  public:
    // `bounds`: the upper end of each bucket, ascending; one without an end follows.
    explicit Histogram(std::vector<double> bounds);
    void observe(double value);

    struct Seen {
        std::vector<uint64_t> up_to; // of each bound, those below it included
        uint64_t count = 0;
        double sum = 0;
    };
    Seen seen() const; // all of one moment
    const std::vector<double> &bounds() const { return bounds_; }

  private:
    const std::vector<double> bounds_;
    mutable std::mutex mutex_;
    std::vector<uint64_t> counts_; // of each bucket alone
    double sum_ = 0;
};

// All functions are thread-safe. What they return lives as long as the registry, and asking again
// for the same name and labels returns the same number.
class Metrics {
  public:
    // Throw std::invalid_argument: the name, or a label's, is none that Prometheus reads, the same
    // name was given another type, another help text or other bounds, or bounds do not ascend.
    Counter &counter(const std::string &name, const std::string &help, const Labels &labels = {});
    Gauge &gauge(const std::string &name, const std::string &help, const Labels &labels = {});
    Histogram &histogram(const std::string &name, const std::string &help,
                         const std::vector<double> &bounds, const Labels &labels = {});
    // Numbers that are kept elsewhere: `value` is called at each `render`, on its thread.
    void measured(const std::string &name, const std::string &help, bool counter,
                  std::function<double()> value, const Labels &labels = {});

    // Returns the text of all of them, for `Content-Type: text/plain; version=0.0.4`.
    std::string render() const;

  private:
    struct Series {
        Labels labels;
        std::unique_ptr<Counter> counter; // one of these four
        std::unique_ptr<Gauge> gauge;
        std::unique_ptr<Histogram> histogram;
        std::function<double()> value;
    };
    struct Family {
        std::string name, help;
        const char *type;
        std::vector<double> bounds;
        std::deque<Series> series;
    };
    Series &find(const std::string &name, const std::string &help, const char *type,
                 const std::vector<double> &bounds, const Labels &labels);

    mutable std::mutex mutex_;
    std::deque<Family> families_; // in the order in which they were first asked for
};

} // namespace serve::http
