// Colours for code: comments, strings, numbers and the keywords that most languages share. One pass,
// no grammar of any language; what it gets wrong is a colour.

export type TokenKind = "plain" | "comment" | "string" | "number" | "keyword";
export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
}

const KEYWORDS = new Set(
  (
    "abstract and as assert async await bool break case catch char class const constexpr continue " +
    "def default del delete do double elif else end enum except export extends extern false final " +
    "finally float fn for from func function global go goto if impl implements import in include " +
    "instanceof int interface is lambda let long match mod module mut namespace new nil none None " +
    "not null nullptr operator or package pass private protected pub public raise return self " +
    "select short signed sizeof static string struct super switch template then this throw trait " +
    "true True False try type typedef typename union unsigned use using var virtual void while " +
    "with yield SELECT FROM WHERE INSERT UPDATE DELETE JOIN GROUP ORDER BY AND OR NOT NULL"
  ).split(" "),
);
const HASH_COMMENTS = /^(?:py|python|sh|bash|zsh|shell|ruby|rb|yaml|yml|toml|perl|r|make|dockerfile)$/i;
const DASH_COMMENTS = /^(?:sql|lua|haskell|hs|ada)$/i;
const PLAIN = /^(?:text|txt|plain|console|markdown|md|)$/i;

export function highlight(text: string, language: string): Token[] {
  if (PLAIN.test(language)) return [{ kind: "plain", text }];
  const comment = HASH_COMMENTS.test(language)
    ? "#[^\\n]*"
    : DASH_COMMENTS.test(language)
      ? "--[^\\n]*"
      : "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
  const pattern = new RegExp(
    `(${comment})|("(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?)` +
      "|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)",
    "g",
  );
  const tokens: Token[] = [];
  let plain_from = 0;
  for (const match of text.matchAll(pattern)) {
    const word = match[4];
    if (word !== undefined && !KEYWORDS.has(word)) continue;
    if (match.index! > plain_from) {
      tokens.push({ kind: "plain", text: text.slice(plain_from, match.index) });
    }
    const kind: TokenKind =
      match[1] !== undefined
        ? "comment"
        : match[2] !== undefined
          ? "string"
          : match[3] !== undefined
            ? "number"
            : "keyword";
    tokens.push({ kind, text: match[0]! });
    plain_from = match.index! + match[0]!.length;
  }
  if (plain_from < text.length) tokens.push({ kind: "plain", text: text.slice(plain_from) });
  return tokens;
}
