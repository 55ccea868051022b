// Reads the tokens around a text; see text_frame.h. Names and meanings: huggingface/tokenizers
// (tokenizers/src/processors).
#include "runtime/text/text_frame.h"

#include "format/state/error.h"

namespace stasis {

namespace {

// A post-processor of tokenizer.json.
struct Processor {
    const Json &json;
    const std::string &file;
    uint32_t vocabulary;

    [[noreturn]] void refuse(const std::string &what) const {
        fail(Status::unsupported, "%s: post_processor %.100s is not supported", file.c_str(),
             what.c_str());
    }
    void add(const Json &name, std::vector<uint32_t> &tokens) const;
    void add_template(TextFrame &frame) const;
    void add_to(TextFrame &frame) const;
};

const std::string &text_of(const Json *json) {
    static const std::string none;
    return json != nullptr && json->text() != nullptr ? *json->text() : none;
}

// Adds the ids of a special token, which the processor lists by name.
void Processor::add(const Json &name, std::vector<uint32_t> &tokens) const {
    const Json *listed = json.find("special_tokens");
    const Json *entry = listed != nullptr ? listed->find(text_of(&name)) : nullptr;
    const Json *ids = entry != nullptr ? entry->find("ids") : nullptr;
    if (ids == nullptr || ids->array() == nullptr) {
        refuse("without ids of the token " + shown(name));
    }
    for (const Json &id : *ids->array()) {
        if (id.count() == nullptr || *id.count() >= vocabulary) {
            refuse("with the token id " + shown(id));
        }
        tokens.push_back(static_cast<uint32_t>(*id.count()));
    }
}

// Adds what a template for one text, "single", has before and after the text.
void Processor::add_template(TextFrame &frame) const {
    const Json *single = json.find("single");
    if (single == nullptr || single->array() == nullptr) {
        refuse("without \"single\"");
    }
    bool text = false;
    for (const Json &piece : *single->array()) {
        const Json *special = piece.find("SpecialToken");
        if (special != nullptr && special->find("id") != nullptr) {
            add(*special->find("id"), text ? frame.after : frame.before);
        } else if (!text && piece.find("Sequence") != nullptr) {
            text = true;
        } else {
            refuse("with the piece " + shown(piece));
        }
    }
    if (!text) {
        refuse("without the text in \"single\"");
    }
}

void Processor::add_to(TextFrame &frame) const {
    const std::string &type = text_of(json.find("type"));
    const Json *parts = json.find("processors");
    if (type == "TemplateProcessing") {
        add_template(frame);
    } else if (type == "Sequence" && parts != nullptr && parts->array() != nullptr) {
        for (const Json &part : *parts->array()) {
            Processor{part, file, vocabulary}.add_to(frame);
        }
    } else if (type != "ByteLevel") { // which adds no token
        refuse(type);
    }
}

} // namespace

TextFrame read_text_frame(const Json &tokenizer_json, const std::string &file,
                          uint32_t vocabulary) {
    TextFrame frame;
    if (const Json *found = tokenizer_json.find_value("post_processor")) {
        try {
            Processor{*found, file, vocabulary}.add_to(frame);
        } catch (const Error &error) {
            frame = {{}, {}, error.what()};
        }
    }
    return frame;
}

} // namespace stasis
