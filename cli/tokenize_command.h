// tokenize: runs tessera-tokenize, which is a program of its own, since the command knows no
// tokenizers.
#ifndef TESSERA_CLI_TOKENIZE_COMMAND_H_
#define TESSERA_CLI_TOKENIZE_COMMAND_H_

namespace tessera {

// Replaces this process by tessera-tokenize with argv behind its name: the one beside this
// program's file, else the first in PATH. argv ends with a null pointer. Comes back only with an
// exit code: precondition if there is no such program, failed if it cannot be run; the error is on
// stderr.
int RunTokenize(char** argv);

}  // namespace tessera

#endif  // TESSERA_CLI_TOKENIZE_COMMAND_H_
