// else read from the compiler's settings, which this tool looks for beside its own files
export default {
  input: "openapi.json",
  output: { path: "client", module: { extension: ".js" } },
};
