// The openai package for Node: a tool loop with its stream helper. usage: node openai_node.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather", parameters } }];
const messages = [{ role: "user", content: "What's the weather in Lisbon and in Oslo?" }];
const said = [];

for (let turn = 0; turn < 3; turn++) {
  const request = { model: "clover", messages, tools };
  const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  stream.on("content", (delta) => said.push(delta));
  const streamed = await stream.finalChatCompletion();
  const plain = await client.chat.completions.create(request);
  const { message, finish_reason } = streamed.choices[0];
  const calls = (m) => (m.tool_calls ?? []).map((c) => [c.type, c.function.name, c.function.arguments]);
  const same =
    JSON.stringify([message.content || "", calls(message), finish_reason, streamed.usage.total_tokens]) ===
    JSON.stringify([
      plain.choices[0].message.content || "",
      calls(plain.choices[0].message),
      plain.choices[0].finish_reason,
      plain.usage.total_tokens,
    ]);
  console.log(JSON.stringify({ finish: finish_reason, calls: calls(message), same }));
  if (!message.tool_calls?.length) break;
  messages.push(message);
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: `${JSON.parse(call.function.arguments).city}: 22` });
  }
}
console.log(JSON.stringify({ said: said.join("") }));
