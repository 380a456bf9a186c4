/* grammar_host.h - host names with A-labels inside of the module: rows, shortest ends, what they are without A-labels, masks. */
#ifndef BY_GRAMMAR_HOST_H
#define BY_GRAMMAR_HOST_H

#include "grammar/grammar_internal.h"

struct by_gr_tokens;

/* All host names, A-labels included. Sets g->host, which turns the special cases below on. */
by_gr_term by_gr_host(by_gr *g);
const by_gr_row *by_gr_row_host(by_gr *g, by_gr_node n, by_gr_term self);
uint32_t by_gr_host_min_bytes(const by_gr *g, by_gr_node n);

/* t with each host name in it, alone or in a union, replaced by a regular language: below it (no A-labels) or above it (all labels
 * that look like one). */
by_gr_term by_gr_host_regular(by_gr *g, by_gr_term t, bool above);
/* The members of an intersection: a name that meets only bounds of its length stays one, else it becomes regular. */
void by_gr_host_meet(by_gr *g, by_gr_term *v, uint32_t n);
/* A JSON string whose text is a union with a host name, as a union of two strings, which have masks of their own. NEVER: it is none. */
by_gr_term by_gr_host_split(by_gr *g, by_gr_term text, unsigned style);

/* Is t a JSON string inside an A-label, or begins with one? The functions below take such a state. */
bool by_gr_is_alabel(const by_gr *g, by_gr_term t);
/* A union with such a state: appends node and member, followed by what follows the union, for each member. False: t is none. */
bool by_gr_alabel_split(by_gr *g, by_gr_term t, uint32_t node, by_gr_vec *out);
/* The next state, without a row: that would make the states behind all bytes. */
by_gr_term by_gr_alabel_next(by_gr *g, by_gr_term t, unsigned byte);
/* The byte that leads to the shortest end. */
int by_gr_alabel_hint(const by_gr *g, by_gr_term t);
/* Adds the tokens below a node of the trie that stay inside the label. Appends pairs to ends: a node at which the label is complete
 * and a text term for what may follow it in the string. */
void by_gr_alabel_tokens(by_gr *g, by_gr_term t, uint32_t node, struct by_gr_tokens *out, by_gr_vec *ends);

#endif
