// One leg of a relay: takes a conversation from a file (or begins one), says TEXT, hears the reply,
// puts it back into the file. Prints the session's digest and the reply. The same program stands in
// bindings/c, bindings/go, bindings/python and bindings/rust; each goes on where another stopped.
// Usage: relay MODEL FILE TEXT
#include <iostream>

#include "stasis.hpp"

namespace {

void relay(const char *path, const char *file, const char *text) {
    const stasis::Model model(path);
    stasis::Session session =
        std::filesystem::exists(file) ? stasis::Session::load(model, file) : stasis::Session(model);
    const std::string reply = session.say(text, {.tokens_max = 40}).text();
    session.save(file);
    std::cout << session.digest().hex() << "\n" << reply << "\n";
    std::vector<std::byte> legs; // letters of the programs before
    if (!session.list_data().empty()) {
        legs = session.data("legs");
    }
    legs.push_back(std::byte{'+'});
    session.set_data("legs", legs);
    session.save(file);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::cerr << "usage: relay MODEL FILE TEXT\n";
        return 2;
    }
    try {
        relay(argv[1], argv[2], argv[3]);
    } catch (const stasis::Error &error) {
        std::cerr << "relay: " << name_of(error.status()) << ": " << error.what() << "\n";
        return 1;
    }
    return 0;
}
