# The static library beside whatever else a host links: only the public names are global in it, a
# host may have functions of every other name that it holds, and a copy of zstd of its own.
import re

from installed import (CONVERSATION, EXAMPLE, InstalledTest, environment, prefix, run)
from stasis_process import LLAMA, ROOT

# A host with a copy of zstd: compresses with it, saves and loads a session whose keys and values
# are compressed, compresses again.
ZSTD_HOST = r"""
#include <stasis.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

static int own_copy_works(void) {
    char text[1000], packed[2000], back[1000];
    memset(text, 'x', sizeof text);
    size_t size = ZSTD_compress(packed, sizeof packed, text, sizeof text, 3);
    return ZSTD_decompress(back, sizeof back, packed, size) == sizeof back &&
           memcmp(text, back, sizeof text) == 0;
}

int main(int argc, char **argv) {
    stasis_model *model = NULL;
    stasis_session *session = NULL, *loaded = NULL;
    stasis_save_options options;
    stasis_token tokens[200];
    stasis_digest before, after;
    stasis_error error;
    stasis_save_options_init(&options, sizeof options);
    options.codec = STASIS_CODEC_ZSTD;
    for (stasis_token i = 0; i < 200; ++i) {
        tokens[i] = 5 + i;
    }
    int good = argc == 3 && own_copy_works() &&
               stasis_model_open(argv[1], NULL, &model, &error) == STASIS_OK &&
               stasis_session_create(model, NULL, &session, &error) == STASIS_OK &&
               stasis_session_append(session, tokens, 200, NULL, &error) == STASIS_OK &&
               stasis_session_save(session, argv[2], &options, &error) == STASIS_OK &&
               own_copy_works() &&
               stasis_session_load(model, argv[2], NULL, &loaded, &error) == STASIS_OK &&
               stasis_session_digest(session, &before, &error) == STASIS_OK &&
               stasis_session_digest(loaded, &after, &error) == STASIS_OK &&
               memcmp(&before, &after, sizeof before) == 0 && own_copy_works();
    stasis_session_free(session);
    stasis_session_free(loaded);
    stasis_model_close(model);
    puts(good ? "the same" : error.message);
    return good ? 0 : 1;
}
"""


def symbols(kinds):
    """Names that the archive defines, of these kinds (nm's letters)."""
    listed = run("nm", "--defined-only", prefix() / "lib/libstasis.a").stdout
    return set(re.findall(rf"^[0-9a-f]+ [{kinds}] (\S+)$", listed, re.MULTILINE))


class Archive(InstalledTest):
    def test_only_the_public_names_are_global(self):
        listed = set(re.findall(r"(stasis_[a-z_]+);", (ROOT / "abi/exports.map").read_text()))
        self.assertEqual(symbols("A-TV-Zuvw"), listed)  # all but U; u: g++'s "unique"
        self.assertGreater(len(listed), 50)

    def test_nothing_that_it_needs_may_be_missing(self):
        """A weak reference takes nothing from an archive such as libstdc++.a, and is then null."""
        needed = run("nm", "--undefined-only", prefix() / "lib/libstasis.a").stdout
        self.assertGreater(len(re.findall(r"^ +U _ZN?K?St", needed, re.MULTILINE)), 50)
        self.assertEqual(re.findall(r"^ +[vw] .*", needed, re.MULTILINE), [])

    def test_a_host_may_use_every_other_name(self):
        """Each name that the archive holds is there once more, as a trap."""
        names = {name for name in symbols("A-TV-Za-z") if re.fullmatch(r"_Z\w+", name)}
        self.assertGreater(len(names), 2000)
        self.assertTrue(any("nlohmann" in name for name in names))
        place = self.temporary()
        (place / "traps.s").write_text("".join(f".globl {name}\n.hidden {name}\n{name}: ud2\n"
                                               for name in sorted(names)) +
                                       '.section .note.GNU-stack,"",@progbits\n')
        program = place / "converse"
        self.ok("cc", place / "traps.s", EXAMPLE, "-o", program,
                *self.pkg_config("--cflags", "--libs", "stasis-static"))
        self.assertEqual(self.ok(program, LLAMA, place / "talk.stasis"), CONVERSATION)

    def test_a_host_with_its_own_zstd(self):
        place = self.temporary()
        (place / "host.c").write_text(ZSTD_HOST)
        for package in "stasis-static", "stasis":
            program = place / package
            self.ok("cc", "-Wall", "-Werror", place / "host.c", "-o", program,
                    "-Wl,--whole-archive", "-l:libzstd.a", "-Wl,--no-whole-archive",
                    *self.pkg_config("--cflags", "--libs", package), "-pthread")
            self.assertIn("ZSTD_compress", self.ok("nm", "--defined-only", program))
            out = self.ok(program, LLAMA, place / f"{package}.stasis",
                          env=environment(LD_LIBRARY_PATH=str(prefix() / "lib")))
            self.assertEqual(out, "the same\n")
