// Wavefronts of shared memory, counted from the addresses that the lanes of a warp use.
//
// There are 32 banks of 4 bytes, and each gives one word in a wavefront, to all lanes that want it
// (CUDA C++ Programming Guide, "Shared Memory" of each compute capability). Lanes that move 8 bytes
// come in halves of a warp, those that move 16 in quarters; of a matrix of ldmatrix, its eight rows
// together. Lanes belong to one instruction if it is their n-th time at a place of the program.
#include "banks.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "meetings.hpp"

namespace emu {

bool watching;

namespace {

constexpr unsigned kBanks = 32, kWord = 4, kRow = 16;
constexpr int kPlaces = 64;  // in a line, see `seen`

struct Seen {
  uint64_t accesses = 0, wavefronts = 0, least = 0;
};

struct Access {
  uint32_t lanes = 0;
  uint32_t addresses[kWarp];
};

// Of one warp at one place: how often each lane was there, and what not all of them did yet.
struct Open {
  unsigned visits[kWarp] = {};
  unsigned counted = 0;
  std::deque<Access> accesses;
};

using Place = std::tuple<std::string, int, unsigned>;  // what it is, where, and a lane's bytes

std::map<Place, Seen> seen_places;
std::map<std::pair<Place, unsigned>, Open> open_accesses;

// Of accesses that come together.
uint64_t wavefronts(const uint32_t* addresses, uint32_t lanes, unsigned bytes) {
  std::set<uint32_t> words[kBanks];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    for (uint32_t word = addresses[lane] / kWord; word * kWord < addresses[lane] + bytes; ++word)
      words[word % kBanks].insert(word);
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return most;
}

void count_access(const Place& place, const Access& access) {
  Seen& seen = seen_places[place];
  ++seen.accesses;
  unsigned bytes = std::get<2>(place);
  unsigned together = bytes <= kWord ? kWarp : kWarp * kWord / bytes;
  for (unsigned first = 0; first < kWarp; first += together) {
    uint32_t lanes = access.lanes & (together == kWarp ? ~0u : ((1u << together) - 1) << first);
    if (lanes == 0) continue;
    seen.wavefronts += wavefronts(access.addresses, lanes, bytes);
    ++seen.least;
  }
}

}  // namespace

void watch_banks(bool on) { watching = on; }

void touch(const char* what, int place, uint32_t address, size_t bytes) {
  Place where{what, place, static_cast<unsigned>(bytes)};
  Open& open = open_accesses[{where, warp_of(now)}];
  unsigned visit = open.visits[now->lane]++ - open.counted;
  if (visit >= open.accesses.size()) open.accesses.resize(visit + 1);
  Access& access = open.accesses[visit];
  access.lanes |= 1u << now->lane;
  access.addresses[now->lane] = address;
  unsigned left = count - now->warp * kWarp;
  uint32_t all = left >= kWarp ? ~0u : (1u << left) - 1;
  while (!open.accesses.empty() && open.accesses.front().lanes == all) {
    count_access(where, open.accesses.front());
    open.accesses.pop_front();
    ++open.counted;
  }
}

void touch_rows(const char* what, int line, const uint32_t* rows, int matrices) {
  Seen& seen = seen_places[{what, line * kPlaces, kRow}];
  ++seen.accesses;
  for (int matrix = 0; matrix < matrices; ++matrix)
    seen.wavefronts += wavefronts(rows + 8 * matrix, 0xFF, kRow);
  seen.least += static_cast<uint64_t>(matrices);
}

void end_watched_cluster() {
  for (const auto& [key, open] : open_accesses)
    for (const Access& access : open.accesses) count_access(key.first, access);
  open_accesses.clear();
}

std::string watched() {
  std::string text;
  for (const auto& [place, seen] : seen_places) {
    const auto& [what, where, bytes] = place;
    text += what + " " + std::to_string(where / kPlaces) + " " + std::to_string(bytes) + " " +
            std::to_string(seen.accesses) + " " + std::to_string(seen.wavefronts) + " " +
            std::to_string(seen.least) + "\n";
  }
  seen_places.clear();
  return text;
}

}  // namespace emu
