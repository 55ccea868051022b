// See metrics.h.
#include "tools/serve/http/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace serve::http {
namespace {

// Returns whether Prometheus reads it: of a label without colons, and not one of its own.
bool is_name(const std::string &name, bool label) {
    const auto good = [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || (c == ':' && !label);
    };
    return !name.empty() && (name[0] < '0' || name[0] > '9') &&
           std::all_of(name.begin(), name.end(), good) && !(label && name.rfind("__", 0) == 0);
}

std::string number(double value) {
    if (std::isnan(value)) {
        return "NaN";
    }
    if (std::isinf(value)) {
        return value > 0 ? "+Inf" : "-Inf";
    }
    char text[32]; // the shortest that is read back as the same number, in every locale
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string escaped(const std::string &text, bool quotes) {
    std::string result;
    for (const char c : text) {
        result += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '"' && quotes ? "\\\"" : "";
        if (c != '\\' && c != '\n' && !(c == '"' && quotes)) {
            result += c;
        }
    }
    return result;
}

std::string sample(const std::string &name, const Labels &labels, const std::string &value,
                   const char *bound = nullptr) {
    std::string text;
    for (const auto &[label, what] : labels) {
        text += (text.empty() ? "" : ",") + label + "=\"" + escaped(what, true) + "\"";
    }
    if (bound != nullptr) {
        text += std::string(text.empty() ? "" : ",") + "le=\"" + bound + "\"";
    }
    return name + (text.empty() ? "" : "{" + text + "}") + " " + value + "\n";
}

std::string samples(const std::string &name, const Labels &labels, const Histogram &histogram) {
    const Histogram::Seen seen = histogram.seen();
    std::string text;
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
        text += sample(name + "_bucket", labels, std::to_string(seen.up_to[i]),
                       number(histogram.bounds()[i]).c_str());
    }
    const std::string count = std::to_string(seen.count);
    return text + sample(name + "_bucket", labels, count, "+Inf") +
           sample(name + "_sum", labels, number(seen.sum)) + sample(name + "_count", labels, count);
}

} // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
    const size_t bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    const std::lock_guard lock(mutex_);
    ++counts_[bucket];
    sum_ += value;
}

Histogram::Seen Histogram::seen() const {
    const std::lock_guard lock(mutex_);
    Seen seen;
    for (const uint64_t count : counts_) {
        seen.count += count;
        seen.up_to.push_back(seen.count);
    }
    seen.up_to.pop_back();
    seen.sum = sum_;
    return seen;
}

// Called with the lock.
Metrics::Series &Metrics::find(const std::string &name, const std::string &help, const char *type,
                               const std::vector<double> &bounds, const Labels &labels) {
    const auto bad_label = [](const auto &label) {
        return !is_name(label.first, true) || label.first == "le";
    };
    if (!is_name(name, false) || std::any_of(labels.begin(), labels.end(), bad_label)) {
        throw std::invalid_argument("no name for Prometheus: " + name + " or a label of it");
    }
    if (std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) != bounds.end()) {
        throw std::invalid_argument("the bounds of " + name + " do not ascend");
    }
    auto family = std::find_if(families_.begin(), families_.end(),
                               [&](const Family &known) { return known.name == name; });
    if (family == families_.end()) {
        families_.push_back({name, help, type, bounds, {}});
        family = std::prev(families_.end());
    }
    if (std::strcmp(family->type, type) != 0 || family->help != help || family->bounds != bounds) {
        throw std::invalid_argument(name + " is a metric of another type, help or bounds");
    }
    for (Series &series : family->series) {
        if (series.labels == labels) {
            return series;
        }
    }
    family->series.push_back({labels, nullptr, nullptr, nullptr, nullptr});
    return family->series.back();
}

Counter &Metrics::counter(const std::string &name, const std::string &help, const Labels &labels) {
    const std::lock_guard lock(mutex_);
    Series &series = find(name, help, "counter", {}, labels);
    if (!series.counter) {
        series.counter = std::make_unique<Counter>();
    }
    return *series.counter;
}

Gauge &Metrics::gauge(const std::string &name, const std::string &help, const Labels &labels) {
    const std::lock_guard lock(mutex_);
    Series &series = find(name, help, "gauge", {}, labels);
    if (!series.gauge) {
        series.gauge = std::make_unique<Gauge>();
    }
    return *series.gauge;
}

Histogram &Metrics::histogram(const std::string &name, const std::string &help,
                              const std::vector<double> &bounds, const Labels &labels) {
    const std::lock_guard lock(mutex_);
    Series &series = find(name, help, "histogram", bounds, labels);
    if (!series.histogram) {
        series.histogram = std::make_unique<Histogram>(bounds);
    }
    return *series.histogram;
}

void Metrics::measured(const std::string &name, const std::string &help, bool counter,
                       std::function<double()> value, const Labels &labels) {
    const std::lock_guard lock(mutex_);
    find(name, help, counter ? "counter" : "gauge", {}, labels).value = std::move(value);
}

std::string Metrics::render() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const Family &family : families_) {
        text += "# HELP " + family.name + " " + escaped(family.help, false) + "\n";
        text += "# TYPE " + family.name + " " + family.type + "\n";
        for (const Series &series : family.series) {
            if (series.histogram) {
                text += samples(family.name, series.labels, *series.histogram);
                continue;
            }
            const double value = series.value     ? series.value()
                                 : series.counter ? series.counter->value()
                                                  : series.gauge->value();
            text += sample(family.name, series.labels, number(value));
        }
    }
    return text;
}

} // namespace serve::http
