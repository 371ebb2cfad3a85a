// One scrape of a server's metrics, as Prometheus would make it.
#pragma once

#include <map>
#include <string>

namespace attn::test {

// The body of GET /metrics from 127.0.0.1:port; "" if there is no answer with status 200.
std::string ScrapeText(int port);

// Of that text: "attn_pages{state=\"live\"}" to its value.
std::map<std::string, double> Scrape(int port);

}  // namespace attn::test
