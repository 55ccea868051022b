// Line: who waits for memory goes when another ends, in turn, and none waits where nothing runs.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tools/serve/engine/line.h"

namespace {

using serve::Line;

struct Gone {
    std::string names; // of those that went, in this order
    Line::Go as(const char *name) {
        return [this, name] { names += name; };
    }
};

} // namespace

TEST_CASE("Line: who finds memory short waits for an end") {
    Line line;
    Gone gone;
    const int a = 0, b = 0, c = 0;
    line.join(&a, gone.as("a"));
    CHECK_FALSE(line.wait(&a, gone.as("a"), true, true)); // nobody else: it fails
    line.join(&b, gone.as("b"));
    CHECK(gone.names == "ab");
    CHECK(line.wait(&b, gone.as("b"), false, false));
    CHECK(line.waiting() == 1);
    line.join(&c, gone.as("c")); // behind those that wait
    CHECK(gone.names == "ab");
    line.ended(); // a; one was short, so that one goes
    CHECK(gone.names == "abb");
    line.ended(); // b
    CHECK(gone.names == "abbc");
    line.ended();
    CHECK(line.waiting() == 0);
    line.join(&a, gone.as("a"));
    CHECK(gone.names == "abbca");
}

TEST_CASE("Line: where nothing else runs the others are tried, each once") {
    Line line;
    Gone gone;
    const int a = 0, b = 0, c = 0;
    line.join(&a, gone.as("a"));
    line.join(&b, gone.as("b"));
    line.join(&c, gone.as("c"));
    CHECK(line.wait(&b, gone.as("b"), false, false));
    CHECK(line.wait(&c, gone.as("c"), false, false));
    CHECK(line.wait(&a, gone.as("a"), true, false)); // b goes in its place
    CHECK(gone.names == "abcb");
    CHECK(line.wait(&b, gone.as("b"), false, false));
    CHECK(gone.names == "abcbc");
    CHECK_FALSE(line.wait(&c, gone.as("c"), false, false)); // none has moved on: c fails
    line.ended();
    CHECK(gone.names == "abcbca");
    CHECK(line.wait(&a, gone.as("a"), true, true)); // it has: all may be tried again
    CHECK(gone.names == "abcbcab");
    CHECK(line.wait(&b, gone.as("b"), false, true));
    CHECK_FALSE(line.wait(&a, gone.as("a"), true, false)); // b has tried since
    line.ended();
    CHECK(gone.names == "abcbcabab");
    line.ended();
    CHECK(line.waiting() == 0);
}

TEST_CASE("Line: who holds memory goes first, and who leaves goes at once") {
    Line line;
    Gone gone;
    const int a = 0, b = 0, c = 0, d = 0;
    line.join(&a, gone.as("a"));
    line.join(&b, gone.as("b"));
    line.join(&c, gone.as("c"));
    line.join(&c, gone.as("C"));
    CHECK(line.wait(&b, gone.as("b"), false, false));
    CHECK(line.wait(&c, gone.as("c"), true, false));
    line.join(&d, gone.as("d"));
    line.release(&b);
    line.release(&b);
    CHECK(gone.names == "abcCb");
    line.ended();
    CHECK(gone.names == "abcCbc");
    line.ended();
    CHECK(gone.names == "abcCbcd");
}

TEST_CASE("Line: more run again once none is short, and who was let go too early keeps its place") {
    Line line;
    Gone gone;
    const int a = 0, b = 0, c = 0, d = 0, e = 0;
    line.join(&a, gone.as("a"));
    line.join(&b, gone.as("b"));
    CHECK(line.wait(&b, gone.as("b"), false, false));
    line.join(&c, gone.as("c"));
    line.join(&d, gone.as("d"));
    line.join(&e, gone.as("e"));
    line.ended(); // a
    CHECK(gone.names == "abb");
    line.ended(); // b: none was short since
    CHECK(gone.names == "abbcd");
    CHECK(line.wait(&d, gone.as("d"), false, false)); // before e
    line.ended();                                     // c
    CHECK(gone.names == "abbcdd");
    line.ended(); // d
    CHECK(gone.names == "abbcdde");
    line.ended();
    CHECK(line.waiting() == 0);
}

TEST_CASE("Line: several of one owner keep their own places, and leave together") {
    Line line;
    Gone gone;
    const int a = 0, b = 0, c = 0, d = 0, ones[3] = {};
    line.join(&a, gone.as("a"));
    line.join(&b, gone.as("b"));
    line.join(&d, gone.as("d"));
    CHECK(line.wait(&b, gone.as("b"), false, false));
    line.join({&c, &ones[0]}, gone.as("0"));
    line.join({&c, &ones[1]}, gone.as("1"));
    line.join({&c, &ones[2]}, gone.as("2"));
    line.ended(); // a: one goes
    line.ended(); // b: none was short since, and two go
    CHECK(gone.names == "abdb01");
    CHECK(line.wait({&c, &ones[0]}, gone.as("0"), false, false)); // to the end
    CHECK(line.wait({&c, &ones[1]}, gone.as("1"), false, false)); // to its place
    line.join(&a, gone.as("a"));
    line.ended(); // d
    CHECK(gone.names == "abdb011");
    line.release(&c);
    CHECK(gone.names == "abdb01120");
    CHECK(line.waiting() == 1);
    for (int i = 0; i < 4; ++i) { // 1, 2, 0, and a
        line.ended();
    }
    CHECK(gone.names == "abdb01120a");
    CHECK(line.waiting() == 0);
}

TEST_CASE("Line: many threads, and none is left waiting") {
    Line line;
    std::atomic<int> ended{0};
    constexpr int kThreads = 8, kEach = 200;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < kEach; ++i) {
                // Each runs out of memory once, where it may wait.
                const auto end = [&] {
                    ++ended;
                    line.ended();
                };
                line.join(&ended, [&, thread, i, end] {
                    if ((thread + i) % 3 != 0 || !line.wait(&ended, end, i % 2 == 0, true)) {
                        end();
                    }
                });
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(ended == kThreads * kEach);
    CHECK(line.waiting() == 0);
}
