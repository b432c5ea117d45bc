// Columns of text, aligned.
#ifndef TESSERA_CLI_TABLE_H_
#define TESSERA_CLI_TABLE_H_

#include <string>
#include <vector>

namespace tessera {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_({std::move(header)}) {}
  // As many cells as the header.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Cells padded to their column, two spaces between, no trailing spaces.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera

#endif  // TESSERA_CLI_TABLE_H_
