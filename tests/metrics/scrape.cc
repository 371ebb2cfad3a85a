#include "tests/metrics/scrape.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace attn::test {
namespace {

constexpr char kRequest[] = "GET /metrics HTTP/1.0\r\n\r\n";

int Connect(int port) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return socket_fd;
  }
  close(socket_fd);
  return -1;
}

}  // namespace

std::string ScrapeText(int port) {
  const int socket_fd = Connect(port);
  if (socket_fd < 0) return "";
  std::string answer;
  if (send(socket_fd, kRequest, sizeof(kRequest) - 1, MSG_NOSIGNAL) > 0) {
    char block[16384];
    for (ssize_t got; (got = recv(socket_fd, block, sizeof(block), 0)) > 0;) {
      answer.append(block, static_cast<size_t>(got));
    }
  }
  close(socket_fd);
  const size_t body = answer.find("\r\n\r\n");
  const bool is_ok = absl::StrContains(answer.substr(0, answer.find('\r')), " 200 ");
  return is_ok && body != std::string::npos ? answer.substr(body + 4) : "";
}

std::map<std::string, double> Scrape(int port) {
  std::map<std::string, double> values;
  const std::string text = ScrapeText(port);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (absl::SimpleAtod(line.substr(space + 1), &value)) {
      values.emplace(line.substr(0, space), value);
    }
  }
  return values;
}

}  // namespace attn::test
