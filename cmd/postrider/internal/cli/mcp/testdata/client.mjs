// Calls tools and prints what they answer, in JSON: client.mjs TARGET CALLS, as client.py.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [target, calls] = [process.argv[2], JSON.parse(process.argv[3])];

function connect() {
  if (target.startsWith("http")) {
    return new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: "Bearer " + process.env.TOKEN } } });
  }
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env });
}

const client = new Client({ name: "tester", version: "1" });
await client.connect(connect());
const { tools } = await client.listTools(); // from then on, answers are checked against the schemas
const answers = [];
for (const [name, args] of calls) {
  const result = await client.callTool({ name, arguments: args });
  answers.push({ failed: result.isError === true, text: result.content[0].text });
}
console.log(JSON.stringify({ server: client.getServerVersion().name, tools: tools.map((t) => t.name).sort(), answers }));
await client.close();
