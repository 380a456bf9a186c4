/* bathyc/error.h - result codes and the error record of the C APIs. */
#ifndef BY_BATHYC_ERROR_H
#define BY_BATHYC_ERROR_H

enum {
    BATHYC_OK = 0,
    BATHYC_AGAIN = 1,     /* nothing has come within the time given */
    BATHYC_IDLE = 3,      /* no request is left */
    BATHYC_INVALID = -1,  /* an argument or a request, named in the error's text */
    BATHYC_NO_MEMORY = -2,
    BATHYC_BUSY = -9,     /* the queue is full */
    BATHYC_CONTEXT = -14, /* the prompt is longer than the context */
    BATHYC_FAILED = -11   /* anything else: see the text */
};

/* Filled by a call that fails; belongs to the caller. */
typedef struct bathyc_error {
    int code;
    char message[512]; /* UTF-8, ends in NUL, cut between characters */
} bathyc_error;

#endif
