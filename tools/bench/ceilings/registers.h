// Text for assembly that names its registers, so that no compiler can spill or join them.
#pragma once

#define STASIS_EACH_8(OF) OF(0) OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7)
#define STASIS_EACH_12(OF) STASIS_EACH_8(OF) OF(8) OF(9) OF(10) OF(11)
#define STASIS_EACH_24(OF)                                                                         \
    STASIS_EACH_12(OF)                                                                             \
    OF(12) OF(13) OF(14) OF(15) OF(16) OF(17) OF(18) OF(19) OF(20) OF(21) OF(22) OF(23)
// Of a list of clobbers, which must go on after it.
#define STASIS_CLOBBER(n) "xmm" #n,

// The loop of `body`, `rounds` times; ends in a label of its own.
#define STASIS_LOOP(body)                                                                          \
    ".p2align 5\n"                                                                                 \
    "1:\n\t" body "dec %[rounds]\n\t"                                                              \
    "jnz 1b\n\t"
