// The Vercel AI SDK: a tool loop, streamed and plain. usage: node ai_sdk.mjs BASE_URL
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const provider = createOpenAICompatible({ name: "clover", baseURL: process.argv[2], apiKey: "none", includeUsage: true });
const inputSchema = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
const request = {
  model: provider("clover"),
  prompt: "What's the weather in Lisbon and in Oslo?",
  tools: { get_weather: tool({ description: "The weather", inputSchema, execute: async ({ city }) => `${city}: 22` }) },
  stopWhen: stepCountIs(4),
  maxRetries: 0,
};

async function summary(result) {
  const steps = await result.steps;
  return {
    text: await result.text,
    finish: steps.map((step) => step.finishReason),
    calls: steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input])),
    results: steps.flatMap((step) => step.toolResults.map((found) => found.output)),
    reasoning: steps.map((step) => step.reasoningText ?? ""),
    tokens: steps.map((step) => step.usage.totalTokens),
  };
}

const streamed = streamText(request);
await streamed.consumeStream();
console.log(JSON.stringify(await summary(streamed)));
console.log(JSON.stringify(await summary(await generateText(request))));
