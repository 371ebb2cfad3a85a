#include "tests/e2e/trickle_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "attn/base/check.h"

namespace attn::test {
namespace {

// RFC 9113: the client's first bytes, then frames of a 9-byte header (24-bit length, type, flags,
// stream) and a payload.
constexpr size_t kPrefaceBytes = 24;
constexpr size_t kHeaderBytes = 9;
constexpr uint8_t kDataFrame = 0;
constexpr uint8_t kEndStream = 1;
using FrameHeader = std::array<uint8_t, kHeaderBytes>;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int NewSocket() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ATTN_CHECK(socket >= 0, "no socket");
  return socket;
}

// Nothing is gathered into larger segments.
void SetNoDelay(int socket) {
  const int on = 1;
  ATTN_CHECK(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "no TCP_NODELAY");
}

bool SendAll(int to, const void* bytes, size_t size) {
  const auto* next = static_cast<const uint8_t*>(bytes);
  while (size > 0) {
    const ssize_t sent = send(to, next, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int from, void* bytes, size_t size) {
  return size == 0 || recv(from, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

}  // namespace

TrickleProxy::TrickleProxy(int server_port, Cut cut)
    : server_port_(server_port), cut_(cut), listener_(NewSocket()) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ATTN_CHECK(bind(listener_, generic, size) == 0 && listen(listener_, 8) == 0 &&
                 getsockname(listener_, generic, &size) == 0,
             "the proxy cannot listen");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

TrickleProxy::~TrickleProxy() {
  stopped_ = true;
  Release();
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  for (std::thread& thread : threads_) thread.join();
  for (const int socket : sockets_) close(socket);
  close(listener_);
}

void TrickleProxy::Accept() {
  for (;;) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    ++num_connections_;
    AwaitRelease();
    const int server = NewSocket();
    const sockaddr_in address = Loopback(server_port_);
    ATTN_CHECK(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
               "the proxy's server is gone");
    SetNoDelay(client);
    SetNoDelay(server);
    sockets_.insert(sockets_.end(), {client, server});
    threads_.emplace_back([this, client, server] {
      cut_ == Cut::kBytes ? ForwardBytes(client, server, true) : ForwardFrames(client, server);
      shutdown(server, SHUT_WR);
    });
    threads_.emplace_back([this, client, server] {
      ForwardBytes(server, client, false);
      shutdown(client, SHUT_WR);
    });
  }
}

void TrickleProxy::ForwardBytes(int from, int to, bool is_clients) {
  std::vector<char> bytes(64 << 10);
  for (;;) {
    const ssize_t received = recv(from, bytes.data(), bytes.size(), 0);
    if (received <= 0) return;
    const auto size = static_cast<size_t>(received);
    const size_t step = cut_ == Cut::kBytes ? 1 : size;
    for (size_t i = 0; i < size; i += step) {
      if (is_clients && !AwaitTurn()) return;
      if (!SendAll(to, &bytes[i], step)) return;
    }
  }
}

void TrickleProxy::ForwardFrames(int from, int to) {
  std::array<char, kPrefaceBytes> preface;
  if (!ReceiveAll(from, preface.data(), preface.size())) return;
  if (!SendAll(to, preface.data(), preface.size())) return;
  while (ForwardFrame(from, to)) {
  }
}

bool TrickleProxy::ForwardFrame(int from, int to) {
  FrameHeader header;
  if (!ReceiveAll(from, header.data(), header.size())) return false;
  std::vector<uint8_t> payload(size_t{header[0]} << 16 | size_t{header[1]} << 8 | header[2]);
  if (!ReceiveAll(from, payload.data(), payload.size())) return false;
  const bool is_cut = header[3] == kDataFrame && payload.size() > 1;
  std::vector<uint8_t> out;
  if (!is_cut) {
    out.assign(header.begin(), header.end());
    out.insert(out.end(), payload.begin(), payload.end());
    return SendAll(to, out.data(), out.size());
  }
  out.reserve(payload.size() * (kHeaderBytes + 1));
  FrameHeader small = header;
  small[0] = small[1] = 0;
  small[2] = 1;
  for (size_t i = 0; i < payload.size(); ++i) {
    if (!AwaitTurn()) return false;
    const bool is_last = i + 1 == payload.size();
    small[4] = is_last ? header[4] : static_cast<uint8_t>(header[4] & ~kEndStream);
    out.insert(out.end(), small.begin(), small.end());
    out.push_back(payload[i]);
  }
  return SendAll(to, out.data(), out.size());
}

// --------------------------------------------------------------------------------------- holding

void TrickleProxy::HoldBefore(uint64_t piece) { hold_before_ = piece; }

void TrickleProxy::HoldConnections() { holds_connections_ = true; }

void TrickleProxy::AwaitRelease() {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [this] { return !holds_connections_ || stopped_; });
}

void TrickleProxy::Release() {
  {
    const std::lock_guard lock(mutex_);
    hold_before_ = UINT64_MAX;
    holds_connections_ = false;
  }
  released_.notify_all();
}

bool TrickleProxy::AwaitTurn() {
  if (num_pieces_ >= hold_before_) {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [this] { return num_pieces_ < hold_before_ || stopped_; });
  }
  if (stopped_) return false;
  ++num_pieces_;
  return true;
}

}  // namespace attn::test
