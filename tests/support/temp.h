/* temp.h - a folder for the files of one test program, removed when it ends. For tests only. */
#ifndef BY_TEST_TEMP_H
#define BY_TEST_TEMP_H

#include <stddef.h>

/* Path of `name` in the folder, which is made on the first call. The text lives until 16 more calls. */
const char *by_temp_path(const char *name);

/* Writes a file there and returns its path; n bytes. Ends the program on failure. */
const char *by_temp_write(const char *name, const void *data, size_t n);

/* Makes a folder there. */
const char *by_temp_folder(const char *name);

#endif
