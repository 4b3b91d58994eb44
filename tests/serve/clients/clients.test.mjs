// The server as clients see it that were written by others: the official OpenAI client, the Vercel
// AI SDK's provider for compatible servers, and LangChain. CELLM_BASE_URL names the server, which
// serves the bundled model; a few replies are known from it.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, streamText, tool } from "ai";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const baseURL = process.env.CELLM_BASE_URL;
const apiKey = process.env.CELLM_API_KEY;
const model = "cellm";
const question = "What is the capital of France?";
const weatherSchema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const constrained = process.env.CELLM_CONSTRAINED === "1";

const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

test("openai: chat", async () => {
  const reply = await openai.chat.completions.create({
    model, temperature: 0, messages: [{ role: "user", content: question }],
  });
  assert.match(reply.choices[0].message.content, /Paris/);
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.ok(reply.usage.prompt_tokens > 0);
});

test("openai: stream", async () => {
  const stream = await openai.chat.completions.create({
    model, temperature: 0, stream: true, stream_options: { include_usage: true },
    messages: [{ role: "user", content: question }],
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.match(text, /Paris/);
  assert.ok(usage.completion_tokens > 0);
});

test("openai: stream helper collects the same", async () => {
  const runner = openai.chat.completions.stream({
    model, temperature: 0, messages: [{ role: "user", content: question }],
  });
  assert.match(await runner.finalContent(), /Paris/);
});

test("openai: an aborted stream is over on both sides", async () => {
  const stream = await openai.chat.completions.create({
    model, stream: true, messages: [{ role: "user", content: "Count to a thousand." }],
  });
  for await (const _ of stream) {
    stream.controller.abort();
  }
  const health = await fetch(baseURL.replace(/\/v1$/, "/health"));
  assert.equal(health.status, 200);
});

test("openai: log-probabilities and choices", async () => {
  const reply = await openai.chat.completions.create({
    model, temperature: 0, n: 2, max_tokens: 3, logprobs: true, top_logprobs: 2,
    messages: [{ role: "user", content: question }],
  });
  assert.equal(reply.choices.length, 2);
  assert.equal(reply.choices[1].logprobs.content.length, 3);
  assert.equal(reply.choices[0].logprobs.content[0].top_logprobs.length, 2);
});

test("openai: tools", async () => {
  const reply = await openai.chat.completions.create({
    model, temperature: 0, messages: [{ role: "user", content: "Weather in Paris?" }],
    tools: [{ type: "function", function: { name: "get_weather", parameters: weatherSchema } }],
    tool_choice: constrained ? "required" : "auto",
  });
  const calls = reply.choices[0].message.tool_calls;
  assert.equal(calls[0].function.name, "get_weather");
  assert.equal(typeof JSON.parse(calls[0].function.arguments).city, "string");
  assert.equal(reply.choices[0].finish_reason, "tool_calls");
  const followed = await openai.chat.completions.create({
    model, temperature: 0, max_tokens: 8,
    messages: [
      { role: "user", content: "Weather in Paris?" },
      reply.choices[0].message,
      { role: "tool", tool_call_id: calls[0].id, content: "sunny" },
    ],
  });
  assert.equal(followed.choices.length, 1);
});

test("openai: streamed tools join to JSON", async () => {
  const stream = await openai.chat.completions.create({
    model, temperature: 0, stream: true, messages: [{ role: "user", content: "Weather in Paris?" }],
    tools: [{ type: "function", function: { name: "get_weather", parameters: weatherSchema } }],
    tool_choice: constrained ? "required" : "auto",
  });
  let name = "";
  let text = "";
  const ids = new Set();
  for await (const chunk of stream) {
    for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
      if (call.id) ids.add(call.id);
      name += call.function?.name ?? "";
      text += call.function?.arguments ?? "";
    }
  }
  assert.equal(name, "get_weather");
  assert.equal(ids.size, 1);
  assert.equal(typeof JSON.parse(text).city, "string");
});

const weatherTool = { type: "function", function: { name: "get_weather", parameters: weatherSchema } };
const unforced = !constrained && "this build cannot force a call";

test("openai: stream helper puts calls together", { skip: unforced }, async () => {
  const runner = openai.chat.completions.stream({
    model, temperature: 0, messages: [{ role: "user", content: "Weather in Paris?" }],
    tools: [weatherTool], tool_choice: "required",
  });
  let text = "";
  let pieces = 0;
  runner.on("tool_calls.function.arguments.delta", (event) => {
    text += event.arguments_delta;
    ++pieces;
  });
  const [call] = (await runner.finalMessage()).tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.equal(call.function.arguments, text);
  assert.equal(typeof JSON.parse(text).city, "string");
  assert.ok(pieces > 2, `${pieces} pieces`);
});

test("openai: stream of responses puts calls together", { skip: unforced }, async () => {
  const runner = openai.responses.stream({
    model, temperature: 0, input: "Weather in Paris?", tool_choice: "required",
    tools: [{ type: "function", name: "get_weather", parameters: weatherSchema, strict: true }],
  });
  let snapshot = "";
  runner.on("response.function_call_arguments.delta", (event) => (snapshot = event.snapshot));
  const { output } = await runner.finalResponse();
  assert.equal(output.length, 1);
  assert.equal(output[0].name, "get_weather");
  assert.equal(output[0].arguments, snapshot);
  assert.equal(typeof JSON.parse(snapshot).city, "string");
});

test("openai: structured output", { skip: !constrained && "this build cannot constrain" }, async () => {
  const reply = await openai.chat.completions.create({
    model, temperature: 0, messages: [{ role: "user", content: "A city, please." }],
    response_format: {
      type: "json_schema",
      json_schema: { name: "weather", strict: true, schema: weatherSchema },
    },
  });
  assert.equal(typeof JSON.parse(reply.choices[0].message.content).city, "string");
});

test("openai: embeddings, models, errors, responses", async () => {
  const vectors = await openai.embeddings.create({ model, input: ["Rome", "a river"] });
  assert.equal(vectors.data.length, 2);
  const length = vectors.data[0].embedding.reduce((sum, x) => sum + x * x, 0);
  assert.ok(Math.abs(length - 1) < 1e-3, `length ${length}`);
  const models = await openai.models.list();
  assert.ok(models.data.length >= 1);
  await assert.rejects(
    openai.chat.completions.create({ model, messages: [{ role: "user", content: "word ".repeat(5000) }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
  const response = await openai.responses.create({ model, temperature: 0, input: question });
  assert.match(response.output_text, /Paris/);
  const stream = await openai.responses.create({ model, temperature: 0, input: question, stream: true });
  let text = "";
  let last = null;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.match(text, /Paris/);
  assert.equal(last.type, "response.completed");
});

test("openai: completions", async () => {
  const reply = await openai.completions.create({ model, prompt: "Once upon", max_tokens: 4 });
  assert.equal(reply.object, "text_completion");
});

const provider = createOpenAICompatible({ name: "cellm", baseURL, apiKey, includeUsage: true });

test("ai sdk: text and stream", async () => {
  const whole = await generateText({ model: provider(model), temperature: 0, prompt: question });
  assert.match(whole.text, /Paris/);
  assert.equal(whole.finishReason, "stop");
  const stream = streamText({ model: provider(model), temperature: 0, prompt: question });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.match(text, /Paris/);
  assert.ok((await stream.usage).outputTokens > 0);
});

test("ai sdk: tools", async () => {
  const result = await generateText({
    model: provider(model), temperature: 0, prompt: "Weather in Paris?",
    tools: {
      get_weather: tool({ description: "weather", inputSchema: z.object({ city: z.string() }) }),
    },
    toolChoice: constrained ? "required" : "auto",
  });
  assert.equal(result.toolCalls[0].toolName, "get_weather");
  assert.equal(typeof result.toolCalls[0].input.city, "string");
});

test("ai sdk: streamed tools", { skip: unforced }, async () => {
  const stream = streamText({
    model: provider(model), temperature: 0, prompt: "Weather in Paris?", toolChoice: "required",
    tools: {
      get_weather: tool({ description: "weather", inputSchema: z.object({ city: z.string() }) }),
    },
  });
  let text = "";
  let pieces = 0;
  const calls = [];
  for await (const part of stream.fullStream) {
    if (part.type === "tool-input-delta") {
      text += part.delta;
      ++pieces;
    }
    if (part.type === "tool-call") calls.push(part);
  }
  assert.equal(calls.length, 1);
  assert.equal(calls[0].toolName, "get_weather");
  assert.deepEqual(calls[0].input, JSON.parse(text));
  assert.ok(pieces > 2, `${pieces} pieces`);
});

test("ai sdk: embeddings", async () => {
  const { embedding } = await embed({ model: provider.embeddingModel(model), value: "Rome" });
  assert.ok(embedding.length > 0);
});

const langchain = (extra) =>
  new ChatOpenAI({ model, temperature: 0, apiKey, maxRetries: 0, configuration: { baseURL }, ...extra });

test("langchain: text and stream", async () => {
  const reply = await langchain().invoke(question);
  assert.match(reply.text, /Paris/);
  assert.ok(reply.usage_metadata.output_tokens > 0);
  let text = "";
  for await (const chunk of await langchain().stream(question)) text += chunk.text;
  assert.match(text, /Paris/);
});

test("langchain: tools", async () => {
  const bound = langchain().bindTools(
    [{ type: "function", function: { name: "get_weather", description: "weather", parameters: weatherSchema } }],
    constrained ? { tool_choice: "any" } : {});
  const reply = await bound.invoke("Weather in Paris?");
  assert.equal(reply.tool_calls[0].name, "get_weather");
  assert.equal(typeof reply.tool_calls[0].args.city, "string");
});

test("langchain: streamed tools", { skip: unforced }, async () => {
  const bound = langchain().bindTools([{ ...weatherTool }], { tool_choice: "any" });
  let all = null;
  let pieces = 0;
  for await (const chunk of await bound.stream("Weather in Paris?")) {
    pieces += chunk.tool_call_chunks?.length ?? 0;
    all = all === null ? chunk : all.concat(chunk);
  }
  assert.equal(all.tool_calls[0].name, "get_weather");
  assert.equal(typeof all.tool_calls[0].args.city, "string");
  assert.ok(pieces > 2, `${pieces} pieces`);
});

test("langchain: embeddings", async () => {
  const vectors = await new OpenAIEmbeddings({ model, apiKey, configuration: { baseURL } })
    .embedDocuments(["Rome", "a river"]);
  assert.equal(vectors.length, 2);
  const length = vectors[0].reduce((sum, x) => sum + x * x, 0);
  assert.ok(Math.abs(length - 1) < 1e-3, `length ${length}`);
});
