#include "tools/attnctl/arguments.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::ctl {
namespace {

struct Verb {
  const char* name;
  const char* word;  // what may follow it; empty: nothing
  bool needs_word;
  std::vector<const char*> flags;  // beside --address, --timeout-ms and --help
  const char* help;
};

const std::vector<Verb>& Verbs() {
  static const auto* const verbs = new std::vector<Verb>{
      {"info", "", false, {"json"}, "version, device, limits and features of the server"},
      {"models", "", false, {"json"}, "declared models, a line each"},
      {"model", "NAME", true, {"json"}, "one model, whole"},
      {"sequences", "", false, {"json", "model", "owner", "limit"}, "open sequences, a line each"},
      {"stats", "", false, {"json", "all"}, "every metric that is not zero"},
      {"top", "", false, {"interval-ms", "count"}, "what the server does now, again and again"},
      {"health",
       "SERVICE",
       false,
       {},
       "ends with 0 if SERVICE, attn.v1.Attention by default, is "
       "serving, else with 1"},
  };
  return *verbs;
}

struct Flag {
  const char* name;
  const char* value;  // empty: takes none
  const char* help;
};

const std::vector<Flag>& Flags() {
  static const auto* const flags = new std::vector<Flag>{
      {"address", "HOST:PORT", "or unix:PATH, of the server; default 127.0.0.1:50051"},
      {"timeout-ms", "N", "of each call, 1 to 600000; default 2000"},
      {"json", "", "the server's message as JSON"},
      {"all", "", "zeros, too"},
      {"model", "NAME", "only sequences of this model"},
      {"owner", "NAME", "only sequences of this owner"},
      {"limit", "N", "at most so many sequences, 1 to 1000000; default 1000"},
      {"interval-ms", "N", "between two looks, 100 to 3600000; default 1000"},
      {"count", "N", "end after so many; default 0, until interrupted"},
      {"help", "", "this text"},
  };
  return *flags;
}

const Verb* FindVerb(const std::string& name) {
  const auto found = std::find_if(Verbs().begin(), Verbs().end(),
                                  [&](const Verb& verb) { return name == verb.name; });
  return found == Verbs().end() ? nullptr : &*found;
}

bool Takes(const Verb& verb, const std::string& flag) {
  const auto is_flag = [&](const char* name) { return flag == name; };
  return flag == "address" || flag == "timeout-ms" || flag == "help" ||
         std::any_of(verb.flags.begin(), verb.flags.end(), is_flag);
}

absl::StatusOr<int64_t> NumberIn(const std::string& flag, absl::string_view text, int64_t min,
                                 int64_t max) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) return value;
  return MakeError(Reason::kInvalid, absl::StrCat("--", flag),
                   absl::StrCat("got \"", text, "\", want ", min, " to ", max));
}

absl::Status SetFlag(const std::string& flag, const std::string& value, Arguments* arguments) {
  if (flag == "address") arguments->address = value;
  if (flag == "model") arguments->model = value;
  if (flag == "owner") arguments->owner = value;
  if (flag == "json") arguments->json = true;
  if (flag == "all") arguments->all = true;
  if (flag == "help") arguments->help = true;
  if (flag == "timeout-ms") {
    ATTN_ASSIGN_OR_RETURN(const int64_t ms, NumberIn(flag, value, 1, 600'000));
    arguments->timeout = std::chrono::milliseconds(ms);
  } else if (flag == "interval-ms") {
    ATTN_ASSIGN_OR_RETURN(const int64_t ms, NumberIn(flag, value, 100, 3'600'000));
    arguments->interval = std::chrono::milliseconds(ms);
  } else if (flag == "limit") {
    ATTN_ASSIGN_OR_RETURN(const int64_t limit, NumberIn(flag, value, 1, 1'000'000));
    arguments->limit = static_cast<uint32_t>(limit);
  } else if (flag == "count") {
    ATTN_ASSIGN_OR_RETURN(const int64_t count, NumberIn(flag, value, 0, int64_t{1} << 40));
    arguments->count = static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

// "--name" or "--name=value".
absl::Status ReadFlag(const std::string& word, const Verb& verb, Arguments* arguments) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(absl::StripPrefix(word, "--"), absl::MaxSplits('=', 1));
  const auto flag = std::find_if(Flags().begin(), Flags().end(),
                                 [&](const Flag& known) { return parts.first == known.name; });
  if (flag == Flags().end() || !Takes(verb, parts.first)) {
    return MakeError(
        Reason::kInvalid, absl::StrCat("--", parts.first),
        absl::StrCat("unknown flag of ", verb.name, ", see attnctl ", verb.name, " --help"));
  }
  const bool wants_value = *flag->value != '\0';
  if (wants_value != absl::StrContains(word, "=")) {
    return MakeError(Reason::kInvalid, absl::StrCat("--", parts.first),
                     wants_value ? absl::StrCat("want --", parts.first, "=", flag->value)
                                 : std::string("takes no value"));
  }
  return SetFlag(parts.first, parts.second, arguments);
}

void AppendLine(const std::string& what, const char* help, std::string* text) {
  absl::StrAppendFormat(text, "  %-22s %s\n", what, help);
}

// "model NAME", "health [SERVICE]".
std::string UseOf(const Verb& verb) {
  if (*verb.word == '\0') return verb.name;
  return verb.needs_word ? absl::StrCat(verb.name, " ", verb.word)
                         : absl::StrCat(verb.name, " [", verb.word, "]");
}

std::string HelpOf(const Verb& verb) {
  std::string text =
      absl::StrCat("attnctl ", UseOf(verb), " [--flag=value ...]: ", verb.help, "\n\n");
  for (const Flag& flag : Flags()) {
    if (!Takes(verb, flag.name)) continue;
    AppendLine(absl::StrCat("--", flag.name, *flag.value ? "=" : "", flag.value), flag.help, &text);
  }
  return text;
}

}  // namespace

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words) {
  Arguments arguments;
  if (words.empty() || words[0] == "--help" || words[0] == "help") {
    arguments.help = true;
    return arguments;
  }
  arguments.verb = words[0];
  const Verb* const verb = FindVerb(words[0]);
  if (verb == nullptr) {
    const auto name_of = [](std::string* out, const Verb& v) { absl::StrAppend(out, v.name); };
    return MakeError(
        Reason::kInvalid, words[0],
        absl::StrCat("no such command, want one of ", absl::StrJoin(Verbs(), ", ", name_of)));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    if (absl::StartsWith(words[i], "--")) {
      ATTN_RETURN_IF_ERROR(ReadFlag(words[i], *verb, &arguments));
    } else if (*verb->word != '\0' && arguments.name.empty()) {
      arguments.name = words[i];
    } else {
      return MakeError(Reason::kInvalid, words[i],
                       absl::StrCat("one word too many, see attnctl ", verb->name, " --help"));
    }
  }
  if (verb->needs_word && arguments.name.empty() && !arguments.help) {
    return MakeError(Reason::kInvalid, verb->name, absl::StrCat("want a ", verb->word));
  }
  return arguments;
}

std::string HelpOf(const std::string& verb_name) {
  if (const Verb* const verb = FindVerb(verb_name)) return HelpOf(*verb);
  std::string text =
      "attnctl looks at a running attn-server and changes nothing.\n\n"
      "  attnctl COMMAND [WORD] [--flag=value ...]    attnctl COMMAND --help\n\n";
  for (const Verb& verb : Verbs()) AppendLine(UseOf(verb), verb.help, &text);
  absl::StrAppend(&text,
                  "\nEnds with 0; with 1 if the server does not answer, refuses or is not serving; "
                  "with 2 for a\nwrong command line.\n");
  return text;
}

}  // namespace attn::ctl
