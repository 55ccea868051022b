/* Stasis: constraints on what a session draws. Part of stasis.h, which states the conventions:
 * errors, pointers, structs, text and threads. Include that. CONSTRAINTS.md, in share/doc/stasis,
 * says which texts each notation means. */
#ifndef STASIS_CONSTRAINT_H
#define STASIS_CONSTRAINT_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Kinds of constraints. */
#define STASIS_CONSTRAINT_NONE 0u
#define STASIS_CONSTRAINT_JSON_SCHEMA 1u /* the instances of a JSON schema */
#define STASIS_CONSTRAINT_JSON 2u        /* any JSON value; there is no text */
#define STASIS_CONSTRAINT_REGEX 3u       /* the texts of a regular expression */
#define STASIS_CONSTRAINT_GRAMMAR 4u     /* the texts of a grammar in GBNF */

/* Sets which texts may be drawn from here on; kind NONE: any, with text NULL and length 0. Tokens
 * that no allowed text goes on by are not drawn, whatever their logits: by decode, generate, steps
 * and drafters alike, and with the same result.
 *
 * The text is that of the drawn tokens of a reply. It begins with the first token that is drawn
 * after the call, and again after whatever was appended (messages, tokens) and after an end token:
 * so each reply of a conversation is one text, and stands by itself. It goes on from call to call,
 * while nothing is appended, whatever other settings change and if the same constraint is set
 * again. Tokens that are appended are never
 * refused and are no part of a text: a host that draws tokens with sample and appends them as they
 * come begins a text with each.
 *
 * Where the text is complete the model's end tokens may be drawn, and nowhere else. Where no token
 * is left (nothing may follow and the model has no end token, the vocabulary cannot spell what may,
 * or biases forbid it), a generation stops with STASIS_STOP_NO_TOKEN, and sample, decode and steps
 * return NO_TOKEN.
 *
 * The constraint is one of the sampling settings: snapshots hold it, forks and rewinds keep it, and
 * tokens that it drew are verified under it. stasis_session_set_sampling does not change it.
 * Settings with different constraints count as different ones (FULL). Constraints share the 64 MiB
 * of a snapshot's manifest: a save of more is UNSUPPORTED, and a rewind takes away what was drawn
 * under them. `cancel` (may be NULL) ends a compilation, whose
 * time and memory are limited for any text. Equal constraints of a model's sessions are compiled
 * once.
 * Errors; whatever was set before stays:
 *   INVALID_ARGUMENT  the text is not in the notation, or no text fits it; the message says what
 *                     and where
 *   UNSUPPORTED       something in it is not supported, which the message names; it is too large;
 *                     or the model has no tokenizer. A draw returns it where a grammar is so
 *                     ambiguous that a text cannot be followed on (CONSTRAINTS.md, "Masks")
 *   CANCELLED */
stasis_status stasis_session_set_constraint(stasis_session *session, uint32_t kind,
                                            const char *text, size_t length, stasis_cancel *cancel,
                                            stasis_error *error);

/* Sets which tokens the next draw may give, for hosts that compute masks of their own (outlines,
 * xgrammar): token t may be drawn if bit t % 32 of bits[t / 32] is set. `count` is the vocabulary,
 * divided by 32 and rounded up; bits beyond the vocabulary are ignored. NULL and 0: all may. The
 * set holds for one token, and is forgotten once that is in the log; after a failed draw, and for
 * sample, it stays. A constraint restricts it further.
 *
 * It is one of the sampling settings, as a constraint is: a snapshot holds the set of each token
 * that was drawn from one, and verification repeats it. Equal sets are stored once; others take
 * what they differ in from one of the last 8, 2 to 3 bytes a token, and at least a sixteenth of
 * what they have as runs or bits: of a vocabulary of 262144 some 2 KiB. Sets that have nothing to
 * do with each other take up to a bit for each token of the vocabulary. A save writes the sets that
 * the file does not have. INVALID_ARGUMENT: another count, or no token is set. */
stasis_status stasis_session_set_allowed(stasis_session *session, const uint32_t *bits,
                                         size_t count, stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_CONSTRAINT_H */
