// Debian's libgloo-dev leaves this header out although its transport headers include it.
//
// What is declared here is what those headers need to be compiled and to lay out their classes:
// three wrappers of one standard smart pointer each. All code that makes or uses them is in the
// library, so that nothing else is defined. Goes when the package has the header.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr {
  std::shared_ptr<T> pointer_;
};

template <typename T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> pointer_;
};

template <typename T>
class WeakNonOwningPtr {
 public:
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& shareable);

 private:
  std::weak_ptr<T> pointer_;
};

}  // namespace gloo
