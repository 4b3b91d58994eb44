// The flag tables. Parsing, --help, the manual page and the completions are all made from them.
#include "cellm/commands.h"

#include "cellm/bench/bench_flags.h"
#include "cellm/common.h"
#include "tensor/kv_type.h"

namespace cellm::tools {
namespace {

using enum FlagKind;

Status CheckKv(const std::string& value) {
  const Result<KvTypes> types = ParseKvTypes(value);
  return types.ok() ? OkStatus() : types.status();
}

Status CheckKvDemote(const std::string& value) {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  return ReadKvDemote(value, &options);
}

constexpr Flag kModelFlags[] = {
    {.name = "model",
     .kind = kFile,
     .value_name = "PATH",
     .help = "A .cellm or .safetensors file, or a folder in Hugging Face form.",
     .default_text = "$CELLM_MODEL, else the model that comes with cellm",
     .short_name = 'm'},
    {.name = "tokenizer",
     .kind = kFile,
     .value_name = "FILE",
     .help = "A tokenizer.json to use instead of the model's own."},
    {.name = "weights",
     .kind = kChoice,
     .value_name = "auto|map|load",
     .help =
         "How weights are held: mapped from the file (the kernel may drop their pages), or read "
         "into memory (faster). auto reads them when there is memory enough.",
     .default_text = "auto"},
    {.name = "mlock",
     .help = "Keep the weights in memory; needs a limit that allows it (ulimit -l)."},
    {.name = "embedding-on-flash",
     .help = "Leave an embedding table that is only looked up in the file and read its rows when "
             "they are needed.",
     .default_text = "on where the model has such a table"},
};

constexpr Flag kEngineFlags[] = {
    {.name = "threads",
     .kind = kInteger,
     .value_name = "N",
     .help = "Threads that compute; more than the cores are not started.",
     .default_text = "the cores that this process may use",
     .short_name = 't'},
    {.name = "context",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens of a conversation, prompt and reply together. More than the model or the "
             "memory allows is refused.",
     .default_text = "what the model was made for",
     .aliases = "ctx-size"},
    {.name = "memory",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Budget of everything but mapped weights, such as 256M or 1G.",
     .default_text = "no limit"},
    {.name = "chunk",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens of the prompt in one step. Results do not depend on it.",
     .default_text = "512"},
    {.name = "kv",
     .kind = kChoice,
     .value_name = "f16|f32|q8|q4|tq4|tq3.5|tq2.5",
     .help = "How keys and values are stored: floats, or 8 to 2.5 bits (docs/kv-formats.md). "
             "k=q8,v=q4 takes different formats.",
     .default_text = "f16",
     .aliases = "kv-encoding",
     .check = &CheckKv},
    {.name = "kv-demote",
     .kind = kText,
     .value_name = "FORMAT[@N]",
     .help =
         "Keep keys and values of tokens that are N or more behind the newest in fewer bits, in "
         "pieces of 512 tokens: 'q4', 'q8@1024'. N is 512 unless given.",
     .default_text = "never",
     .check = &CheckKvDemote},
    {.name = "activations",
     .kind = kChoice,
     .value_name = "i8|f32",
     .help = "Products with 8-bit activations, or the slow float path.",
     .default_text = "i8"},
    {.name = "kernels",
     .kind = kText,
     .value_name = "TIER",
     .help = "Kernel tier by name (scalar, avx2, ...); 'cellm inspect --kernels' lists them.",
     .default_text = "the best that this CPU has"},
    {.name = "page-tokens",
     .kind = kInteger,
     .value_name = "N",
     .help = "Tokens of a cache page, a multiple of 16.",
     .default_text = "32",
     .aliases = "tokens-per-block"},
    {.name = "max-pages",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most cache pages.",
     .default_text = "what the budget allows",
     .aliases = "total-blocks"},
};

// Of engines that several conversations share, or one that comes and goes.
constexpr Flag kServingFlags[] = {
    {.name = "policy",
     .kind = kChoice,
     .value_name = "deadline|round-robin",
     .help =
         "Who computes next: interactive conversations before background ones, which keep their "
         "share, or everyone in turn.",
     .default_text = "deadline"},
    {.name = "step-ms",
     .kind = kInteger,
     .value_name = "N",
     .help = "Time that a step should take at most: longer prompts are cut. Results do not depend "
             "on it.",
     .default_text = "200"},
    {.name = "past-memory",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Most memory for beginnings that are kept to be used again, where --memory does not "
             "limit it.",
     .default_text = "256M"},
    {.name = "swap",
     .kind = kFile,
     .value_name = "FOLDER",
     .help = "Where conversations wait on disk when --memory is short. Without it they are "
             "evaluated again.",
     .default_text = "nowhere"},
    {.name = "swap-size",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Most bytes there.",
     .default_text = "four times --memory, at least 1G"},
    {.name = "private-sessions",
     .help = "Nothing that one conversation evaluated is used by another."},
};

constexpr Flag kSessionFlags[] = {
    {.name = "overflow",
     .kind = kChoice,
     .value_name = "stop|error|shift|slide",
     .help = "When the context is full: end the reply, fail, or forget. shift forgets the earlier "
             "half behind the beginning that --keep names, slide of everything.",
     .default_text = "stop"},
    {.name = "keep",
     .kind = kInteger,
     .value_name = "N",
     .help = "Tokens at the beginning that --overflow shift never forgets.",
     .default_text = "the first prompt, at most half of the context"},
};

constexpr Flag kSamplingFlags[] = {
    {.name = "temperature",
     .kind = kNumber,
     .value_name = "F",
     .help = "0 takes the most likely token every time; higher is more varied.",
     .default_text = "the model's, else 0.8",
     .aliases = "temp"},
    {.name = "top-k",
     .kind = kInteger,
     .value_name = "N",
     .help = "Choose among the N best; 0 for all.",
     .default_text = "the model's, else 40"},
    {.name = "top-p",
     .kind = kNumber,
     .value_name = "F",
     .help = "Choose among the best that hold this much probability together.",
     .default_text = "the model's, else 1"},
    {.name = "min-p",
     .kind = kNumber,
     .value_name = "F",
     .help = "Drop tokens below this share of the best one's probability.",
     .default_text = "0"},
    {.name = "typical-p",
     .kind = kNumber,
     .value_name = "F",
     .help = "Choose among the tokens whose surprise is nearest to the expected one.",
     .default_text = "1",
     .aliases = "typical"},
    {.name = "repeat-penalty",
     .kind = kNumber,
     .value_name = "F",
     .help = "Above 1, makes recent tokens less likely.",
     .default_text = "the model's, else 1",
     .aliases = "repetition-penalty"},
    {.name = "repeat-window",
     .kind = kInteger,
     .value_name = "N",
     .help = "How many recent tokens the penalties look at; -1 for all.",
     .default_text = "64",
     .aliases = "repeat-last-n"},
    {.name = "frequency-penalty",
     .kind = kNumber,
     .value_name = "F",
     .help = "Subtracted from a token's logit for each time it occurs in the window.",
     .default_text = "0"},
    {.name = "presence-penalty",
     .kind = kNumber,
     .value_name = "F",
     .help = "Subtracted once from the logit of tokens that occur in the window.",
     .default_text = "0"},
    {.name = "logit-bias",
     .kind = kText,
     .value_name = "ID=F",
     .help = "Added to a token's logit; -100 bans it, 100 allows nothing else.",
     .repeatable = true},
    {.name = "seed",
     .kind = kText,
     .value_name = "N",
     .help = "Random seed; the same seed gives the same text.",
     .default_text = "drawn and reported"},
};

constexpr Flag kReplyFlags[] = {
    {.name = "gen",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens to produce; 0 only evaluates the prompt.",
     .default_text = "until the model ends or the context is full",
     .aliases = "max-tokens n-predict"},
    {.name = "stop",
     .kind = kText,
     .value_name = "TEXT",
     .help = "End the reply where this text begins.",
     .repeatable = true},
    {.name = "stop-tokens",
     .kind = kText,
     .value_name = "IDS",
     .help = "Further token ids that end the reply, comma-separated."},
    {.name = "stop-eos",
     .kind = kSwitch,
     .help = "End at the model's end tokens (--no-stop-eos goes on).",
     .default_text = "on"},
    {.name = "json-schema",
     .kind = kFile,
     .value_name = "FILE|TEXT",
     .help = "Reply with JSON that this schema accepts; a text begins with '{'."},
    {.name = "grammar",
     .kind = kFile,
     .value_name = "FILE|TEXT",
     .help = "Reply with a text of this GBNF grammar; a text contains '::='."},
    {.name = "regex",
     .kind = kText,
     .value_name = "TEXT",
     .help = "Reply with a text that this regular expression matches as a whole."},
    {.name = "choices",
     .kind = kFile,
     .value_name = "FILE|TEXT",
     .help = "Reply with one of these texts, a JSON array; a text begins with '['."},
};

constexpr Flag kTemplateFlags[] = {
    {.name = "system", .kind = kText, .value_name = "TEXT", .help = "The system message."},
    {.name = "chat-format",
     .kind = kChoice,
     .value_name = "auto|chatml|gemma|gemma4|llama3|plain",
     .help = "How turns are written. auto: the model's own template.",
     .default_text = "auto"},
    {.name = "template-arg",
     .kind = kText,
     .value_name = "K=V",
     .help = "A variable for the chat template; V is JSON, or text when it is not.",
     .repeatable = true},
    {.name = "no-think",
     .kind = kSwitch,
     .help = "Short for --template-arg enable_thinking=false."},
};

constexpr Flag kInferFlags[] = {
    {.name = "journal",
     .kind = kFile,
     .value_name = "FOLDER",
     .help =
         "Write down the reply as it is made, in FOLDER: the same prompt with the same folder goes "
         "on with a reply that was under way when the program was killed, as it was asked for."},
    {.name = "prompt",
     .kind = kText,
     .value_name = "TEXT",
     .help = "The prompt.",
     .short_name = 'p'},
    {.name = "prompt-file",
     .kind = kFile,
     .value_name = "FILE|-",
     .help = "Read the prompt from a file, or from stdin.",
     .aliases = "file",
     .short_name = 'f'},
    {.name = "tokens",
     .kind = kText,
     .value_name = "IDS|@FILE",
     .help = "The prompt as token ids, comma-separated, or the name of a file that holds them."},
    {.name = "seq",
     .kind = kInteger,
     .value_name = "N",
     .help = "The prompt is the token ids 0 to N-1 (for timing)."},
    {.name = "chat",
     .kind = kSwitch,
     .help = "The prompt is what a user says; wrap it in the model's chat template."},
    {.name = "parse-special",
     .kind = kSwitch,
     .help = "Special tokens spelled out in the prompt become their ids."},
    {.name = "max-layers",
     .kind = kInteger,
     .value_name = "N",
     .help = "Not supported: a model cut short computes nothing of use."},
    {.name = "backend",
     .kind = kChoice,
     .value_name = "cpu",
     .help = "Where to compute.",
     .default_text = "cpu"},
};

constexpr Flag kInferOutputFlags[] = {
    {.name = "logprobs",
     .kind = kInteger,
     .value_name = "N",
     .help = "Report log-probabilities of each token, and of the N best alternatives.",
     .implied = "0"},
    {.name = "show-special", .kind = kSwitch, .help = "Show special tokens in the text."},
    {.name = "json",
     .kind = kSwitch,
     .help = "Print one JSON object instead of text: text, token_ids, finish, receipt."},
    {.name = "quiet", .kind = kSwitch, .help = "No receipt on stderr.", .short_name = 'q'},
};

constexpr FlagGroup kInferGroups[] = {
    {"prompt", kInferFlags},         {"model", kModelFlags},        {"chat", kTemplateFlags},
    {"reply", kReplyFlags},          {"sampling", kSamplingFlags},  {"engine", kEngineFlags},
    {"full context", kSessionFlags}, {"output", kInferOutputFlags},
};

constexpr Flag kChatOutputFlags[] = {
    {.name = "receipt", .kind = kSwitch, .help = "Show counts and speed after each reply."},
    {.name = "quiet", .kind = kSwitch, .help = "No greeting.", .short_name = 'q'},
};

constexpr Flag kChatFlags[] = {
    {.name = "session",
     .kind = kFile,
     .value_name = "FILE",
     .help = "Go on with the conversation of FILE, and keep it there after every reply. What the "
             "model remembers of it is written to FILE.state at the end, so that the next time "
             "nothing is evaluated again."},
    {.name = "journal",
     .kind = kFile,
     .value_name = "FOLDER",
     .help =
         "Write down everything as it is said, in FOLDER, so that nothing is lost when the program "
         "is killed: the next chat with this folder goes on with it, in the middle of a reply "
         "if need be. /exit ends a conversation and deletes its journal."},
};

constexpr FlagGroup kChatGroups[] = {
    {"conversation", kChatFlags},    {"model", kModelFlags},       {"chat", kTemplateFlags},
    {"reply", kReplyFlags},          {"sampling", kSamplingFlags}, {"engine", kEngineFlags},
    {"full context", kSessionFlags}, {"memory", kServingFlags},    {"output", kChatOutputFlags},
};

constexpr Flag kConvertFlags[] = {
    {.name = "input",
     .kind = kFile,
     .value_name = "PATH",
     .help = "A folder in Hugging Face form, or a model file.",
     .short_name = 'i'},
    {.name = "output",
     .kind = kFile,
     .value_name = "FILE",
     .help = "The .cellm file to write. It appears under this name only when it is complete.",
     .short_name = 'o'},
    {.name = "dtype",
     .kind = kChoice,
     .value_name = "source|f16|bf16|f32",
     .help = "Format of what is not quantised.",
     .default_text = "source"},
    {.name = "quantize-int8-symmetric",
     .kind = kSwitch,
     .help = "Weights in 8 bits with a scale a row."},
    {.name = "quantize-int4-symmetric",
     .kind = kSwitch,
     .help = "Weights in 4 bits with a scale a group."},
    {.name = "group-size",
     .kind = kInteger,
     .value_name = "N",
     .help = "Columns of a 4-bit group: 32, 64 or 128; 0 for a scale a row.",
     .default_text = "32"},
    {.name = "quantize",
     .kind = kText,
     .value_name = "FORMAT",
     .help = "Format of all matrices but embedding and head: i8 i6 i5 i4 i3 i2 (symmetric), i8a "
             "i6a i5a i4a i3a i2a (affine), ternary or i1; ':N' or ':row' says how many columns "
             "share a scale (i4:64)."},
    {.name = "quantize-embedding",
     .kind = kText,
     .value_name = "FORMAT",
     .help = "Format of embedding and head, with --quantize. Default: i6 for four bits or fewer, "
             "else i8."},
    {.name = "recipe",
     .kind = kFile,
     .value_name = "FILE",
     .help = "Lines 'PATTERN FORMAT': a tensor name with '*', or @attention, @mlp, @embedding, "
             "@head, @other. The first that matches decides."},
    {.name = "mixed",
     .kind = kText,
     .value_name = "NAME",
     .help = "A recipe that is built in: about that many bits a weight."},
    {.name = "calibrate",
     .kind = kFile,
     .value_name = "FILE",
     .help = "A text that the model reads first; weights are then rounded by what they are "
             "multiplied with, and the loss is measured and stored in the file."},
    {.name = "calibrate-tokens",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens of that text.",
     .default_text = "32768"},
    {.name = "calibrate-memory",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Most memory for what is learnt from it; matrices beyond it are rounded more simply.",
     .default_text = "4G"},
    {.name = "requantize",
     .kind = kSwitch,
     .help = "Quantise weights again that are quantised in the source."},
    {.name = "layout",
     .kind = kChoice,
     .value_name = "packed|v1",
     .help = "packed: kernel layout. v1: plain version 1, which old readers run.",
     .default_text = "packed"},
    {.name = "quiet",
     .kind = kSwitch,
     .help = "No progress bar and no summary.",
     .short_name = 'q'},
};

constexpr FlagGroup kConvertGroups[] = {{"options", kConvertFlags}};

constexpr Flag kQuantizeFlags[] = {
    {.name = "input", .kind = kFile, .value_name = "PATH", .help = "The model.", .short_name = 'i'},
    {.name = "output",
     .kind = kFile,
     .value_name = "FILE",
     .help = "The .cellm file to write.",
     .short_name = 'o'},
    {.name = "mode",
     .kind = kChoice,
     .value_name = "i8|i4",
     .help = "Bits a weight.",
     .default_text = "i4"},
    {.name = "group-size",
     .kind = kInteger,
     .value_name = "N",
     .help = "Columns of a 4-bit group: 32, 64 or 128; 0 for a scale a row.",
     .default_text = "32"},
    {.name = "quantize",
     .kind = kText,
     .value_name = "FORMAT",
     .help = "Format of all matrices but embedding and head: i8 i6 i5 i4 i3 i2 (symmetric), i8a "
             "i6a i5a i4a i3a i2a (affine), ternary or i1; ':N' or ':row' says how many columns "
             "share a scale (i4:64)."},
    {.name = "quantize-embedding",
     .kind = kText,
     .value_name = "FORMAT",
     .help = "Format of embedding and head, with --quantize. Default: i6 for four bits or fewer, "
             "else i8."},
    {.name = "recipe",
     .kind = kFile,
     .value_name = "FILE",
     .help = "Lines 'PATTERN FORMAT': a tensor name with '*', or @attention, @mlp, @embedding, "
             "@head, @other. The first that matches decides."},
    {.name = "mixed",
     .kind = kText,
     .value_name = "NAME",
     .help = "A recipe that is built in: about that many bits a weight."},
    {.name = "calibrate",
     .kind = kFile,
     .value_name = "FILE",
     .help = "A text that the model reads first; weights are then rounded by what they are "
             "multiplied with, and the loss is measured and stored in the file."},
    {.name = "calibrate-tokens",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens of that text.",
     .default_text = "32768"},
    {.name = "calibrate-memory",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Most memory for what is learnt from it; matrices beyond it are rounded more simply.",
     .default_text = "4G"},
    {.name = "requantize",
     .kind = kSwitch,
     .help = "Quantise weights again that are quantised in the source."},
    {.name = "layout",
     .kind = kChoice,
     .value_name = "packed|v1",
     .help = "packed: kernel layout. v1: plain version 1, which old readers run.",
     .default_text = "packed"},
    {.name = "quiet",
     .kind = kSwitch,
     .help = "No progress bar and no summary.",
     .short_name = 'q'},
};

constexpr FlagGroup kQuantizeGroups[] = {{"options", kQuantizeFlags}};

constexpr Flag kInspectFlags[] = {
    {.name = "model",
     .kind = kFile,
     .value_name = "PATH",
     .help = "The model (or give it as the argument).",
     .default_text = "$CELLM_MODEL, else the model that comes with cellm",
     .short_name = 'm'},
    {.name = "verify",
     .kind = kSwitch,
     .help = "Read everything and compare it with the checksums in the file."},
    {.name = "kernels",
     .kind = kSwitch,
     .help = "Say which kernel tiers this machine has and which one is chosen."},
    {.name = "json", .kind = kSwitch, .help = "Print one JSON object."},
};

constexpr FlagGroup kInspectGroups[] = {{"options", kInspectFlags}};

constexpr Flag kPerplexityFlags[] = {
    {.name = "text", .kind = kFile, .value_name = "FILE", .help = "The text to predict."},
    {.name = "window",
     .kind = kInteger,
     .value_name = "N",
     .help = "Tokens of a window; each starts from an empty state.",
     .default_text = "256"},
    {.name = "windows",
     .kind = kInteger,
     .value_name = "N",
     .help = "How many windows from the start of the text; 0 for all.",
     .default_text = "40"},
    {.name = "against",
     .kind = kFile,
     .value_name = "PATH",
     .help =
         "Another model with the same tokenizer, such as the unquantised one: also print its "
         "perplexity, the KL divergence from it, and how often both rank the same token first."},
    {.name = "against-kv",
     .kind = kChoice,
     .value_name = "f16|f32|q8|q4|tq4|tq3.5|tq2.5",
     .help = "The same comparison with keys and values in this format, of --against or of the same "
             "model: what --kv costs.",
     .check = &CheckKv},
    {.name = "store",
     .help =
         "Keep what --kv costs, against f16 or --against-kv, in the .cellm file, so that engines "
         "which use that format need not warn. The file is written anew and counts as another "
         "model for saved sessions."},
    {.name = "json",
     .kind = kSwitch,
     .help = "Print {\"perplexity\", \"predicted_tokens\"} as one JSON object."},
    {.name = "quiet", .kind = kSwitch, .help = "No progress bar.", .short_name = 'q'},
};

constexpr FlagGroup kPerplexityGroups[] = {
    {"options", kPerplexityFlags}, {"model", kModelFlags}, {"engine", kEngineFlags}};

constexpr Flag kLogitsFlags[] = {
    {.name = "tokens",
     .kind = kText,
     .value_name = "IDS|@FILE",
     .help = "Token ids, comma-separated, or the name of a file that holds them."},
    {.name = "out",
     .kind = kFile,
     .value_name = "FILE",
     .help = "The .safetensors file to write: one tensor \"logits\", float32 [tokens, vocabulary].",
     .aliases = "output",
     .short_name = 'o'},
    {.name = "beside",
     .kind = kInteger,
     .value_name = "N",
     .help = "Run N other sequences in the same steps. Results do not depend on it.",
     .default_text = "0"},
    {.name = "quiet", .kind = kSwitch, .help = "No summary on stderr.", .short_name = 'q'},
};

constexpr FlagGroup kLogitsGroups[] = {
    {"options", kLogitsFlags}, {"model", kModelFlags}, {"engine", kEngineFlags}};

constexpr Flag kEmbedFlags[] = {
    {.name = "prompt-file",
     .kind = kFile,
     .value_name = "FILE",
     .help = "Read the text from a file; - is stdin. May be given more than once.",
     .repeatable = true},
    {.name = "lines", .help = "Every line of a file or of stdin is a text of its own."},
    {.name = "pooling",
     .kind = kChoice,
     .value_name = "mean|last",
     .help = "The mean of the states of all tokens, or the last token's.",
     .default_text = "mean"},
    {.name = "normalize", .help = "Scale each embedding to length 1."},
    {.name = "json",
     .kind = kSwitch,
     .help = "Print one JSON object with all embeddings and their token counts."},
    {.name = "quiet", .kind = kSwitch, .help = "No summary on stderr.", .short_name = 'q'},
};

constexpr FlagGroup kEmbedGroups[] = {
    {"options", kEmbedFlags}, {"model", kModelFlags}, {"engine", kEngineFlags}};

constexpr Flag kTokenizeFlags[] = {
    {.name = "model",
     .kind = kFile,
     .value_name = "PATH",
     .help = "A model whose tokenizer to use.",
     .default_text = "$CELLM_MODEL, else the model that comes with cellm",
     .short_name = 'm'},
    {.name = "tokenizer", .kind = kFile, .value_name = "FILE", .help = "A tokenizer.json to use."},
    {.name = "add-special",
     .kind = kSwitch,
     .help = "Add what the tokenizer adds around a text (BOS and the like)."},
    {.name = "parse-special",
     .kind = kSwitch,
     .help = "Special tokens spelled out in the text become their ids."},
    {.name = "decode", .kind = kSwitch, .help = "The input is ids; print the text."},
    {.name = "skip-special", .kind = kSwitch, .help = "Leave special tokens out of the text."},
    {.name = "jsonl",
     .kind = kFile,
     .value_name = "FILE|-",
     .help =
         "Read an object a line, with \"text\" or \"ids\"; write {\"ids\"} or {\"text\"} a line."},
    {.name = "prompt-file",
     .kind = kFile,
     .value_name = "FILE|-",
     .help = "Read the input from a file, or from stdin.",
     .aliases = "file",
     .short_name = 'f'},
    {.name = "json",
     .kind = kSwitch,
     .help = "Print a JSON object instead of the bare ids or text."},
};

constexpr FlagGroup kTokenizeGroups[] = {{"options", kTokenizeFlags}};

constexpr Flag kRenderFlags[] = {
    {.name = "template", .kind = kFile, .value_name = "FILE", .help = "A Jinja chat template."},
    {.name = "model",
     .kind = kFile,
     .value_name = "PATH",
     .help = "A model whose template to use.",
     .short_name = 'm'},
    {.name = "vars",
     .kind = kFile,
     .value_name = "FILE|-",
     .help = "A JSON object with messages, tools and every other variable."},
    {.name = "now",
     .kind = kText,
     .value_name = "TIME",
     .help = "What strftime_now() formats, such as 2026-01-15T09:30:00.",
     .default_text = "the clock"},
    {.name = "continue-final-message",
     .kind = kSwitch,
     .help = "Leave the last message open (also as a variable of that name, "
             "continue_final_message)."},
    {.name = "jsonl",
     .kind = kFile,
     .value_name = "FILE|-",
     .help =
         "Read variables, an object a line; write {\"result\"} or {\"error\", \"error_type\"} a "
         "line. Without --template and --model a line is {\"template\", \"vars\"}."},
};

constexpr FlagGroup kRenderGroups[] = {{"options", kRenderFlags}};

constexpr Flag kCommitFlags[] = {
    {.name = "gen",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most tokens of the message.",
     .default_text = "80",
     .aliases = "max-tokens"},
};

constexpr FlagGroup kCommitGroups[] = {{"options", kCommitFlags},
                                       {"model", kModelFlags},
                                       {"chat", kTemplateFlags},
                                       {"sampling", kSamplingFlags},
                                       {"engine", kEngineFlags}};

constexpr FlagGroup kBenchGroups[] = {{"options", kBenchFlags},
                                      {"serving", kBenchServeFlags},
                                      {"model", kModelFlags},
                                      {"engine", kEngineFlags},
                                      {"many conversations", kServingFlags}};

constexpr Flag kHelpFlags[] = {
    {.name = "man", .kind = kSwitch, .help = "Print the manual page, for 'man -l -'."},
};

constexpr FlagGroup kHelpGroups[] = {{"options", kHelpFlags}};

constexpr Flag kModelFileFlags[] = {
    {.name = "tokenizer",
     .kind = kFile,
     .value_name = "FILE",
     .help = "A tokenizer.json to use instead of the model's own."},
    {.name = "weights",
     .kind = kChoice,
     .value_name = "auto|map|load",
     .help =
         "How weights are held: mapped from the file (the kernel may drop their pages), or read "
         "into memory (faster). auto reads them when there is memory enough.",
     .default_text = "auto"},
    {.name = "mlock",
     .help = "Keep the weights in memory; needs a limit that allows it (ulimit -l)."},
    {.name = "embedding-on-flash",
     .help = "Leave an embedding table that is only looked up in the file and read its rows when "
             "they are needed.",
     .default_text = "on where the model has such a table"},
};

// With several models: a file each, and one budget for all of them.
constexpr Flag kServeModelFlags[] = {
    {.name = "model",
     .kind = kFile,
     .value_name = "[NAME=]PATH",
     .help =
         "A model to serve, by the name of its file or another one. The first is opened at once, "
         "others when they are asked for.",
     .default_text = "$CELLM_MODEL, else the model that comes with cellm",
     .short_name = 'm',
     .repeatable = true},
    {.name = "chat-format",
     .kind = kChoice,
     .value_name = "auto|chatml|gemma|gemma4|llama3|plain",
     .help = "How turns are written. auto: the model's own template.",
     .default_text = "auto"},
};

constexpr Flag kServeFlags[] = {
    {.name = "host",
     .kind = kText,
     .value_name = "ADDRESS",
     .help = "Where to listen; 0.0.0.0 or :: for every network. Only this machine reaches the "
             "default.",
     .default_text = "127.0.0.1"},
    {.name = "port",
     .kind = kInteger,
     .value_name = "N",
     .help = "Port; 0 takes a free one.",
     .default_text = "8080"},
    {.name = "api-key",
     .kind = kText,
     .value_name = "KEY",
     .help = "Requests must say Authorization: Bearer KEY.",
     .default_text = "$CELLM_API_KEY, else none"},
    {.name = "cors",
     .kind = kText,
     .value_name = "ORIGIN",
     .help = "Pages of this origin may use the server from a browser; * for all.",
     .default_text = "none"},
    {.name = "parallel",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most replies of a model that are computed at once; others wait.",
     .default_text = "64"},
    {.name = "max-requests",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most requests that run or wait; more are answered 429.",
     .default_text = "256"},
    {.name = "max-connections",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most open connections; more are answered 503.",
     .default_text = "512"},
    {.name = "max-body",
     .kind = kText,
     .value_name = "SIZE",
     .help = "Largest body of a request.",
     .default_text = "16M"},
    {.name = "sessions",
     .kind = kFile,
     .value_name = "FOLDER",
     .help = "Where sessions that are kept by name are suspended to, and resumed from.",
     .default_text = "nowhere"},
    {.name = "max-sessions",
     .kind = kInteger,
     .value_name = "N",
     .help = "Most sessions kept by name in memory; those used longest ago are suspended.",
     .default_text = "64"},
    {.name = "ping-ms",
     .kind = kInteger,
     .value_name = "N",
     .help = "A comment goes to a waiting stream after so long.",
     .default_text = "5000"},
    {.name = "grace",
     .kind = kInteger,
     .value_name = "SECONDS",
     .help = "How long replies under way may take when the server is told to stop.",
     .default_text = "30"},
};

constexpr FlagGroup kServeGroups[] = {{"server", kServeFlags},
                                      {"models", kServeModelFlags},
                                      {"how models are opened", kModelFileFlags},
                                      {"engine", kEngineFlags},
                                      {"many conversations", kServingFlags}};

constexpr Command kCommands[] = {
    {"infer", "answer a prompt, streamed", "",
     "Evaluates a prompt and streams what the model says next. With --chat the prompt is one turn "
     "of a conversation; without it the text is continued as it stands.",
     "cellm infer --chat --prompt \"What is the capital of France?\"\n"
     "cellm infer -m models/cellm-nano-int8.cellm -p \"Once upon a time\" --gen 64 --seed 7\n"
     "cat notes.txt | cellm infer --prompt-file - --temperature 0 --json",
     kInferGroups, RunInfer},
    {"chat", "talk with a model", "",
     "A conversation in the terminal. Ctrl-C stops a reply, not the program; /help lists what else "
     "can be typed; Ctrl-D or /exit ends. Without a terminal, each line of stdin is a message.",
     "cellm chat\ncellm chat --system \"Answer in one sentence.\" --temperature 0\n"
     "cellm chat --session notes.json --overflow shift",
     kChatGroups, RunChat},
    {"serve", "answer over HTTP, as the OpenAI API does", "",
     "A server for clients of the OpenAI API: chat, completions, embeddings and more "
     "(docs/server.md). Many conversations share one copy of the weights and one memory budget. "
     "Ctrl-C ends when the replies under way are finished.",
     "cellm serve\n"
     "cellm serve -m models/cellm-nano-int8.cellm --memory 256M --port 8081\n"
     "cellm serve -m small=a.cellm -m large=b.cellm --memory 2G --api-key \"$KEY\"",
     kServeGroups, RunServe},
    {"convert", "make a .cellm file of a checkpoint", "[SOURCE [FILE]]",
     "Reads a Hugging Face folder or a model file and writes one .cellm file that holds "
     "everything: "
     "weights, tokenizer, chat template, generation defaults and checksums. What was written is "
     "opened and bound like any model before it gets its name.",
     "cellm convert SmolLM2-135M-Instruct smollm2.cellm\n"
     "cellm convert -i nano -o nano-int8.cellm --quantize-int8-symmetric\n"
     "cellm convert -i nano -o nano-int4.cellm --quantize-int4-symmetric --group-size 32\n"
     "cellm convert -i nano -o nano-3.cellm --quantize i3:64 --calibrate prose.txt",
     kConvertGroups, RunConvert},
    {"quantize", "make a smaller file of a model", "[SOURCE [FILE]]",
     "The same as convert with a quantise flag, in the older spelling.",
     "cellm quantize --input nano.cellm --output nano-i4.cellm --mode i4 --group-size 64",
     kQuantizeGroups, RunQuantize},
    {"inspect", "show what is in a model file", "[FILE]",
     "Lists the header, the tensors with their formats and sizes, and what is odd about the file.",
     "cellm inspect nano.cellm\ncellm inspect nano.cellm --verify\ncellm inspect --kernels",
     kInspectGroups, RunInspect},
    {"perplexity", "measure how well a model predicts a text", "",
     "Encodes the text whole, cuts the ids into windows, evaluates each from an empty state and "
     "averages the negative log-likelihood of all predictions but the first of each window.",
     "cellm perplexity --text heldout.txt --window 256 --windows 40 --json\n"
     "cellm perplexity -m nano-3.cellm --against nano --text heldout.txt\n"
     "cellm perplexity -m nano.cellm --kv q4 --store --text heldout.txt",
     kPerplexityGroups, RunPerplexity},
    {"logits", "write the logits of every position", "",
     "For checks from outside: evaluates token ids and writes the raw logits after each.",
     "cellm logits --tokens 1,2,3 --out logits.safetensors --activations f32 --kv f32",
     kLogitsGroups, RunLogits},
    {"bench", "measure how fast a model runs here", "",
     "Measures prefill, decode, several sequences at once, loading, the first token of a reply and "
     "memory, each several times, and shows medians beside the limits of the machine that were "
     "measured in the same run. Without a model at hand, --synthetic makes a file of random "
     "weights at the shape of a well-known one.",
     "cellm bench -m models/cellm-nano-int8.cellm\n"
     "cellm bench --synthetic qwen2.5-0.5b --format i4 --threads 2 --depths 0,4096\n"
     "cellm bench --synthetic smollm2-135m --matrix --format f16,i8,i4 --json figures.json\n"
     "cellm bench --synthetic llama-3.2-1b --gguf q4_k_m --write-only",
     kBenchGroups, RunBench},
    {"embed", "turn texts into vectors", "[TEXT...]",
     "Evaluates each text by itself and prints its embedding, one line of numbers a text: the "
     "states after the model's last norm, pooled. Without arguments the text is read from stdin. "
     "All texts are evaluated together, and none of them changes the embedding of another.",
     "cellm embed --normalize \"The sun is warm.\" \"It rains.\"\n"
     "cellm embed --pooling last --json <text.txt\n"
     "cellm embed --lines --prompt-file titles.txt >vectors.txt",
     kEmbedGroups, RunEmbed},
    {"tokenize", "turn text into token ids and back", "[TEXT|IDS]",
     "Prints the ids of a text, comma-separated, or with --decode the text of ids. Without an "
     "argument the input is read from stdin.",
     "cellm tokenize \"Hello world\"\ncellm tokenize --decode 9906,1917\n"
     "cellm tokenize --tokenizer tokenizer.json --jsonl texts.jsonl --add-special",
     kTokenizeGroups, RunTokenize},
    {"render", "render a chat template", "", "Prints what a chat template makes of a conversation.",
     "cellm render --template chat_template.jinja --vars conversation.json\n"
     "cellm render --model nano.cellm --vars - --now 2026-01-15T09:30:00",
     kRenderGroups, RunRender},
    {"commit-message", "write a commit message for the staged changes", "",
     "Reads a diff from stdin, or from 'git diff --cached' when stdin is a terminal, and prints a "
     "message for it. The model is --model, else $CELLM_COMMIT_MODEL, else as for the other "
     "commands. A diff that does not fit the context is cut, and a note says so.",
     "git add -p && cellm commit-message\ngit diff HEAD~1 | cellm commit-message", kCommitGroups,
     RunCommitMessage},
    {"completions",
     "print completions for a shell",
     "bash|zsh|fish",
     "",
     "cellm completions bash > /etc/bash_completion.d/cellm",
     {},
     RunCompletions},
    {"help", "show help", "[COMMAND]", "", "cellm help infer\ncellm help --man | man -l -",
     kHelpGroups, RunHelp},
};

}  // namespace

std::span<const Command> AllCommands() { return kCommands; }

}  // namespace cellm::tools
