// A TCP proxy before a server on this host that hands the bytes on in the smallest pieces: what a
// slow or a hostile network can do to a client's requests and to its answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace attn::test {

class TrickleProxy {
 public:
  enum class Cut {
    kBytes,       // every byte, of both directions, in a write of its own
    kDataFrames,  // HTTP/2 DATA frames of the client become frames of one byte each
  };

  TrickleProxy(int server_port, Cut cut);
  // Breaks every connection.
  ~TrickleProxy();
  TrickleProxy(const TrickleProxy&) = delete;
  TrickleProxy& operator=(const TrickleProxy&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Bytes of the client (kBytes) or of its DATA frames (kDataFrames) that were handed on one by
  // one.
  uint64_t num_pieces() const { return num_pieces_; }
  uint64_t num_connections() const { return num_connections_; }

  // The client's bytes stop before piece `piece`, until Release.
  void HoldBefore(uint64_t piece);
  // New connections are made but get no byte, until Release.
  void HoldConnections();
  void Release();

 private:
  void Accept();
  void AwaitRelease();
  // The client's bytes; a thread per connection and direction.
  void ForwardBytes(int from, int to, bool is_clients);
  void ForwardFrames(int from, int to);
  bool ForwardFrame(int from, int to);
  // One more piece may go; false when the proxy ends.
  bool AwaitTurn();

  const int server_port_;
  const Cut cut_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<uint64_t> num_pieces_{0};
  std::atomic<uint64_t> num_connections_{0};
  std::atomic<uint64_t> hold_before_{UINT64_MAX};
  std::atomic<bool> holds_connections_{false};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // for what waits for Release
  std::condition_variable released_;
  std::vector<int> sockets_;          // of the acceptor, until it has ended
  std::vector<std::thread> threads_;  // as sockets_
  std::thread acceptor_;
};

}  // namespace attn::test
