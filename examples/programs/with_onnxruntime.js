// ONNX Runtime for Node or for the web as a program that the suite asks (docs/protocol.md).
// npm install --ignore-scripts onnxruntime-node onnxruntime-web
// python -m conformance --backend 'exec:node with_onnxruntime.js onnxruntime-web'
const fs = require("fs");
const readline = require("readline");
const ort = require(process.argv[2] ?? "onnxruntime-node");

// The suite's name of a type, ONNX Runtime's, and the array that holds it. Node 20 has none of float16: its bits are in this one.
const TYPES = [
  ["float16", "float16", Uint16Array],
  ["float", "float32", Float32Array],
  ["double", "float64", Float64Array],
  ["int64", "int64", BigInt64Array],
  ["uint32", "uint32", Uint32Array],
];
let loaded, session; // the calls of a session follow each other, and have the same model

function read({ type, shape, file }) {
  const [, name, array] = TYPES.find(([known]) => known === type);
  const bytes = fs.readFileSync(file);
  const numbers = new array(bytes.length / array.BYTES_PER_ELEMENT);
  Buffer.from(numbers.buffer).set(bytes);
  return new ort.Tensor(name, numbers, shape);
}

function write(name, tensor) {
  const [type] = TYPES.find(([, known]) => known === tensor.type);
  const { buffer, byteOffset, byteLength } = tensor.data;
  fs.writeFileSync(`${name}.out`, Buffer.from(buffer, byteOffset, byteLength));
  return { name, type, shape: tensor.dims, file: `${name}.out` };
}

async function run({ model, inputs, outputs, node }) {
  if (node.domain || inputs.some(({ type }) => !TYPES.some(([known]) => known === type)))
    return { unsupported: `no ${node.op_type} of ${inputs[0].type}` };
  try {
    if (model !== loaded) session = await ort.InferenceSession.create(fs.readFileSync(model), { logSeverityLevel: 4 });
    loaded = model;
    const results = await session.run(Object.fromEntries(inputs.map((input) => [input.name, read(input)])), outputs);
    return { outputs: outputs.map((name) => write(name, results[name])) };
  } catch (error) {
    return { refused: error.message };
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (request.request === "stop") break;
    if (request.request === "start") process.chdir(request.folder); // in which all files are
    const answer = request.request === "start" ? { version: 1 } : await run(request);
    process.stdout.write(`${JSON.stringify({ seq: request.seq, ...answer })}\n`);
  }
}
main();
