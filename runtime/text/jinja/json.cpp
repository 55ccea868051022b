// Reads JSON to values of templates. The parser is nlohmann's, which needs no stack for nesting.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "format/state/error.h"
#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

namespace {

constexpr size_t kReadDepthMax = 30; // so that make_list and make_dict accept what is read

// Takes the calls of nlohmann's parser, whose names are fixed.
class Builder {
  public:
    explicit Builder(const std::string &what) : what_(what) {}

    bool null() { return place({Value::Data(None{})}); }
    bool boolean(bool value) { return place({Value::Data(value)}); }
    bool number_integer(int64_t value) { return place({Value::Data(value)}); }
    bool number_unsigned(uint64_t value) {
        if (value > INT64_MAX) {
            bad("an integer beyond 64 bits");
        }
        return place({Value::Data(static_cast<int64_t>(value))});
    }
    bool number_float(double value, const std::string &text) {
        if (text.find_first_of(".eE") == std::string::npos) {
            bad("an integer beyond 64 bits");
        }
        return place({Value::Data(value)});
    }
    bool string(std::string &value) { return place(Value(std::move(value))); }
    bool binary(nlohmann::json::binary_t &) { return false; } // not in text
    bool start_object(size_t) { return open(true); }
    bool start_array(size_t) { return open(false); }
    bool key(std::string &name) {
        Open &object = open_.back();
        if (!object.keys.insert(name).second) {
            bad(("the key \"" + name.substr(0, 40) + "\" twice in one object").c_str());
        }
        object.members.emplace_back(std::move(name), Value());
        return true;
    }
    bool end_object() {
        Value value = make_dict(std::move(open_.back().members));
        open_.pop_back();
        return place(std::move(value));
    }
    bool end_array() {
        Value value = make_list(std::move(open_.back().items));
        open_.pop_back();
        return place(std::move(value));
    }
    [[noreturn]] bool parse_error(size_t, const std::string &, const std::exception &error) {
        fail(Status::invalid_argument, "%s is not valid JSON: %s", what_.c_str(), error.what());
    }

    Value take() { return std::move(root_); }

  private:
    struct Open {
        bool object;
        List items;
        Dict members;
        std::set<std::string> keys;
    };

    [[noreturn]] void bad(const char *found) const {
        fail(Status::invalid_argument, "%s has %s", what_.c_str(), found);
    }
    bool open(bool object) {
        if (open_.size() >= kReadDepthMax) {
            bad("values nested deeper than 30");
        }
        open_.push_back({object, {}, {}, {}});
        return true;
    }
    bool place(Value value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (open_.back().object) {
            open_.back().members.back().second = std::move(value);
        } else {
            open_.back().items.push_back(std::move(value));
        }
        return true;
    }

    const std::string &what_;
    Value root_;
    std::vector<Open> open_; // arrays and objects, each inside the one before it
};

} // namespace

Value from_json(std::string_view text, const std::string &what) {
    Builder builder(what);
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
}

} // namespace stasis::jinja
