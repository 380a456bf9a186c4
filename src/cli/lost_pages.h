/* lost_pages.h - a mapped file that someone truncates: the program says which one and ends, instead of dying of a signal. */
#ifndef BY_CLI_LOST_PAGES_H
#define BY_CLI_LOST_PAGES_H

/* From now on a fault on a page that its mapped file no longer has (or that cannot be read) writes "bathyc: PATH: ..." to
 * stderr and ends the process with code 1, on whatever thread. Other bus errors stay what they are. Once, from main. */
void by_lost_pages_watch(void);

#endif
