/* commands.h - the table of commands; each lives in src/cli/cmd_<name>.c. argv starts behind the command's name.
 * Exit codes: 0 done, 1 a run failed, 2 wrong usage. */
#ifndef BY_CLI_COMMANDS_H
#define BY_CLI_COMMANDS_H

#define BY_COMMAND_TABLE(X)                                                                        \
    X(batch, "answer a file of API requests")                                                      \
    X(bench, "measure speed")                                                                      \
    X(calibrate, "fit the temperatures of draft confidences")                                      \
    X(chat, "talk with the model in the terminal")                                                \
    X(conform, "answer rows of test vectors")                                                      \
    X(encode, "show what a request becomes: prompt, token ids, settings")                          \
    X(generate, "generate tokens for lines of token ids")                                          \
    X(grammar, "check a grammar, sample it, validate a text")                                      \
    X(grammar_bench, "measure grammars: requests as JSON lines")                                   \
    X(logits, "logits of every token of given sequences, for numeric checks")                        \
    X(inspect, "show what a checkpoint holds and needs")                                           \
    X(parse, "split a model's output into reasoning, content and tool calls")                      \
    X(detokenize, "text of token ids")                                                             \
    X(tokenize, "token ids of a text")                                                             \
    X(simulate, "replay recorded drafts on a modelled machine")                                    \
    X(serve, "answer requests over HTTP")                                                         \
    X(run, "answer one question")                                                                  \
    X(version, "print the version and what this build contains")

#define BY_COMMAND_DECL(name, help) int by_cmd_##name(int argc, char **argv);
BY_COMMAND_TABLE(BY_COMMAND_DECL)
#undef BY_COMMAND_DECL

#endif
