// Paths of this build's parts. Only places.cpp is compiled with these paths, so that the other
// files of a test are the same in every clone and a compiler cache recognises them.
#pragma once

namespace places {
extern const char *const source; // the clone
extern const char *const binary; // the build tree
// Programs and files that tests of the public interface use; empty in other programs.
extern const char *const library; // libstasis.so
extern const char *const device_module;
extern const char *const c_compiler;
extern const char *const cxx_compiler;
extern const char *const nm;
} // namespace places
