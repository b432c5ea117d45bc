// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel Random Numbers: As Easy as 1,
// 2, 3", SC 2011, section 3.3): 128 random bits are a function of a counter and a key, so any
// element of a sequence is had without those before it.
#ifndef TESSERA_KERNELS_PHILOX_H_
#define TESSERA_KERNELS_PHILOX_H_

#include <array>
#include <cstdint>

namespace tessera {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

inline std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// Block `block` of stream `stream` of the sequences that `seed` names.
inline std::array<uint32_t, 4> PhiloxBlock(uint64_t seed, uint64_t stream, uint64_t block) {
  return Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_PHILOX_H_
